// Package probe supervises the connectivity of the modules that its config file names, and tells it over mutual TLS
// (P-06, P-11). Data goes config → supervisor → state → API. It knows no Controller and asks no API server.
package probe

import (
	"crypto/sha256"
	"encoding/hex"
	encodingjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/json"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxTimeout of a request, for every driver (P-16).
	maxTimeout = time.Second
	// minPeriod and maxPeriod are wider than what admission allows; beyond them a probe would do nothing but check, or never.
	minPeriod = 10 * time.Millisecond
	maxPeriod = time.Hour
)

// Config is one version of the config file.
type Config struct {
	// Hash is the SHA-256 of the file, in hex.
	Hash    string
	Modules []Module
	// Unnamed counts the entries without a name: nothing can be reported of them.
	Unnamed int
}

// Module is one entry of the config file.
type Module struct {
	Name       string
	UID        string
	Generation int64
	// Spec has all defaults filled in.
	Spec v1alpha1.IOModuleSpec
	// Err is set when the entry cannot be used: it is reported for this module and stops no other.
	Err *driver.Error
	// digest is equal for two entries that supervise the same device in the same way.
	digest [sha256.Size]byte
}

// ParseConfig reads a config file: {"modules":[{"name","uid","generation","spec":<v1alpha1 IOModuleSpec>}]}. The error
// is of the file as a whole; what is wrong with one entry stands in its Module.
func ParseConfig(data []byte) (*Config, error) {
	var file struct {
		Modules []encodingjson.RawMessage `json:"modules"`
	}
	if err := decode(data, &file); err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	if file.Modules == nil {
		return nil, errors.New(`config file: it has no member "modules"; a probe of nothing needs "modules": []`)
	}
	sum := sha256.Sum256(data)
	c := &Config{Hash: hex.EncodeToString(sum[:])}
	index := map[string]int{}
	for _, raw := range file.Modules {
		m := parseModule(raw)
		if m.Name == "" {
			c.Unnamed++
			continue
		}
		if i, ok := index[m.Name]; ok {
			c.Modules[i].Err = configurationError("the config file names the module twice")
			c.Modules[i].digest = sha256.Sum256(append(c.Modules[i].digest[:], m.digest[:]...))
			continue
		}
		index[m.Name] = len(c.Modules)
		c.Modules = append(c.Modules, m)
	}
	return c, nil
}

func parseModule(raw encodingjson.RawMessage) Module {
	// The name first and leniently, so that what is wrong with the rest has a name.
	var name struct {
		Name       string `json:"name"`
		UID        string `json:"uid"`
		Generation int64  `json:"generation"`
	}
	_ = json.UnmarshalCaseSensitivePreserveInts(raw, &name)
	m := Module{Name: name.Name, UID: name.UID, Generation: name.Generation}

	var entry struct {
		Name       string                 `json:"name"`
		UID        string                 `json:"uid"`
		Generation int64                  `json:"generation"`
		Spec       *v1alpha1.IOModuleSpec `json:"spec"`
	}
	err := decode(raw, &entry)
	if err == nil && entry.Spec == nil {
		err = errors.New("it has no spec")
	}
	if err != nil {
		m.Err = configurationError("the config file's entry: %w", err)
		m.digest = sha256.Sum256(raw)
		return m
	}
	defaulted := v1alpha1.IOModule{Spec: *entry.Spec}
	v1alpha1.SetObjectDefaults_IOModule(&defaulted)
	m.Spec = defaulted.Spec
	if err := checkSettings(m.Spec.Probe); err != nil {
		m.Err = err
	}
	canonical, err := encodingjson.Marshal(m.Spec)
	if err != nil {
		m.Err = configurationError("the config file's entry: %w", err)
	}
	m.digest = sha256.Sum256(append([]byte(m.UID+"\n"), canonical...))
	return m
}

// checkSettings refuses what a supervisor cannot work with. Admission has refused it before; a probe that trusted the
// file would stop measuring everything over one number.
func checkSettings(p *v1alpha1.ProbeSettings) *driver.Error {
	switch {
	case p.Period.Duration < minPeriod || p.Period.Duration > maxPeriod:
		return configurationError("spec.probe.period is %s, and must be from %s to %s", p.Period.Duration, minPeriod, maxPeriod)
	case p.Timeout.Duration <= 0 || p.Timeout.Duration > maxTimeout:
		return configurationError("spec.probe.timeout is %s, and must be positive and at most %s", p.Timeout.Duration, maxTimeout)
	case *p.FailureThreshold < 1:
		return configurationError("spec.probe.failureThreshold is %d, and must be at least 1", *p.FailureThreshold)
	case *p.SuccessThreshold < 1:
		return configurationError("spec.probe.successThreshold is %d, and must be at least 1", *p.SuccessThreshold)
	}
	return nil
}

// decode reads exactly one JSON document as the API server reads it: members are told apart by case, none is unknown, none comes twice.
func decode(data []byte, into any) error {
	strict, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

func configurationError(format string, args ...any) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf(format, args...)}
}
