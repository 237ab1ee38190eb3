package etcd

import (
	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// newLogger lets etcd write into the server's own log, warnings and worse, so
// that the line that says why etcd ended is in the place and the format in
// which everything else is. Once closing is closed only what ends the process
// is written, since etcd calls every listener that it closes itself a failure.
func newLogger(sink logr.Logger, closing <-chan struct{}) *zap.Logger {
	return zap.New(&logCore{sink: sink, closing: closing})
}

type logCore struct {
	sink    logr.Logger
	closing <-chan struct{}
}

var _ zapcore.Core = &logCore{}

func (c *logCore) Enabled(level zapcore.Level) bool {
	select {
	case <-c.closing:
		return level > zapcore.ErrorLevel
	default:
		return level >= zapcore.WarnLevel
	}
}

func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{sink: c.sink.WithValues(keysAndValues(fields)...), closing: c.closing}
}

func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Level < zapcore.ErrorLevel {
		c.sink.Info(entry.Message, keysAndValues(fields)...)
		return nil
	}
	c.sink.Error(nil, entry.Message, keysAndValues(fields)...)
	if entry.Level > zapcore.ErrorLevel {
		// zap ends the process after this returns.
		klog.Flush()
	}
	return nil
}

func (c *logCore) Sync() error {
	klog.Flush()
	return nil
}

func keysAndValues(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	out := make([]any, 0, 2*len(fields))
	for _, field := range fields {
		field.AddTo(encoder)
		out = append(out, field.Key, encoder.Fields[field.Key])
	}
	return out
}
