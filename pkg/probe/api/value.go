package api

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Value is a raw value with its type. It is told as text: JSON's numbers hold neither every integer of 64 bits nor infinity.
type Value struct {
	Type driver.DataType `json:"type"`
	Text string          `json:"text"`
}

// ValueOf is a bool, a number or a text of whatever Go type; false for anything else.
func ValueOf(value any) (Value, bool) {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Bool:
		return Value{driver.Bool, strconv.FormatBool(v.Bool())}, true
	case reflect.Int16:
		return Value{driver.Int16, strconv.FormatInt(v.Int(), 10)}, true
	case reflect.Int32:
		return Value{driver.Int32, strconv.FormatInt(v.Int(), 10)}, true
	case reflect.Int, reflect.Int8, reflect.Int64:
		return Value{driver.Int64, strconv.FormatInt(v.Int(), 10)}, true
	case reflect.Uint16:
		return Value{driver.Uint16, strconv.FormatUint(v.Uint(), 10)}, true
	case reflect.Uint32:
		return Value{driver.Uint32, strconv.FormatUint(v.Uint(), 10)}, true
	case reflect.Uint, reflect.Uint8, reflect.Uint64:
		return Value{driver.Uint64, strconv.FormatUint(v.Uint(), 10)}, true
	case reflect.Float32:
		return Value{driver.Float32, strconv.FormatFloat(v.Float(), 'g', -1, 32)}, true
	case reflect.Float64:
		return Value{driver.Float64, strconv.FormatFloat(v.Float(), 'g', -1, 64)}, true
	case reflect.String:
		return Value{driver.String, v.String()}, true
	default:
		return Value{}, false
	}
}

// Raw is the value in the Go type that its type has in package driver.
func (v Value) Raw() (any, error) {
	raw, err := v.raw()
	if err != nil {
		if e, ok := errors.AsType[*strconv.NumError](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("a value of type %q: %w", v.Type, err)
	}
	return raw, nil
}

func (v Value) raw() (any, error) {
	switch v.Type {
	case driver.Bool:
		switch v.Text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, strconv.ErrSyntax
	case driver.Int16:
		n, err := strconv.ParseInt(v.Text, 10, 16)
		return int16(n), err
	case driver.Int32:
		n, err := strconv.ParseInt(v.Text, 10, 32)
		return int32(n), err
	case driver.Int64:
		return strconv.ParseInt(v.Text, 10, 64)
	case driver.Uint16:
		n, err := strconv.ParseUint(v.Text, 10, 16)
		return uint16(n), err
	case driver.Uint32:
		n, err := strconv.ParseUint(v.Text, 10, 32)
		return uint32(n), err
	case driver.Uint64:
		return strconv.ParseUint(v.Text, 10, 64)
	case driver.Float32:
		n, err := strconv.ParseFloat(v.Text, 32)
		return float32(n), err
	case driver.Float64:
		return strconv.ParseFloat(v.Text, 64)
	case driver.String:
		return v.Text, nil
	default:
		return nil, errors.New("there is no such type")
	}
}
