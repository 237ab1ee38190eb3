// Package unit keeps the state of every Unit: it carries out commands, holds a Unit whose required modules fail, and
// tells its runtime (P-16, P-16b, P-16c).
package unit
