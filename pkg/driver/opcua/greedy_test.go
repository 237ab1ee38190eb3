package opcua

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// heapDuring is how far the heap grows while f runs, in MiB.
func heapDuring(f func()) int {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before := heap()
	most := before
	ended, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
				most = max(most, heap())
			}
		}
	}()
	f()
	close(ended)
	<-watching
	return int(max(most, heap())-before) >> 20
}

// refer is a reference to a node.
func refer(to *ua.NodeID, name string, class ua.NodeClass) *ua.ReferenceDescription {
	return &ua.ReferenceDescription{
		ReferenceTypeID: ua.NewNumericNodeID(0, 35), IsForward: true, NodeID: ua.NewExpandedNodeID(to, "", 0),
		BrowseName: &ua.QualifiedName{NamespaceIndex: 1, Name: name}, DisplayName: ua.NewLocalizedText(""), NodeClass: class,
		TypeDefinition: ua.NewTwoByteExpandedNodeID(0),
	}
}

func goodValue(v any) *ua.DataValue {
	return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}
}

// Req: P-13 (a hostile device: what it says of itself does not take the probe's memory, which is 512 MiB for a thousand modules)
func TestADiscoveryTakesLittleMemoryWhateverTheServerTells(t *testing.T) {
	long := strings.Repeat("n", 50_000)
	tall := strings.Repeat("t", maxName)
	children := func(prefix string, n int, name string, class ua.NodeClass) *ua.BrowseResult {
		result := &ua.BrowseResult{}
		for i := range n {
			result.References = append(result.References, refer(ua.NewStringNodeID(1, fmt.Sprintf("%s.%d", prefix, i)), name, class))
		}
		return result
	}
	for _, c := range []struct {
		name string
		// browse is what a node refers to, next what follows.
		browse func(id string) *ua.BrowseResult
		next   func(n int) *ua.BrowseResult
		value  func(n *ua.ReadValueID) *ua.DataValue
	}{
		{
			name: "names of namespaces without end",
			browse: func(id string) *ua.BrowseResult {
				if id == "i=85" {
					return children("v", 300, "v", ua.NodeClassVariable)
				}
				if strings.Count(id, ".") < 3 {
					return children(strings.TrimPrefix(id, "ns=1;s="), 10, "v", ua.NodeClassVariable)
				}
				return &ua.BrowseResult{}
			},
			value: func(n *ua.ReadValueID) *ua.DataValue {
				if n.NodeID.String() == "i=2255" {
					return goodValue([]string{"http://opcfoundation.org/UA/", long})
				}
				return nil
			},
		},
		{
			name: "long paths to many objects",
			browse: func(id string) *ua.BrowseResult {
				switch depth := strings.Count(id, "."); {
				case id == "i=85":
					return children("o", 1, tall, ua.NodeClassObject)
				case depth < 15:
					return children(strings.TrimPrefix(id, "ns=1;s="), 1, tall, ua.NodeClassObject)
				case depth < 17:
					return children(strings.TrimPrefix(id, "ns=1;s="), 300, "o", ua.NodeClassObject)
				}
				return &ua.BrowseResult{}
			},
		},
		{
			name: "long names without end",
			browse: func(string) *ua.BrowseResult {
				return &ua.BrowseResult{ContinuationPoint: []byte{1}, References: []*ua.ReferenceDescription{refer(ua.NewStringNodeID(1, "a"), long, ua.NodeClassObject)}}
			},
			next: func(n int) *ua.BrowseResult {
				return &ua.BrowseResult{ContinuationPoint: []byte{1}, References: []*ua.ReferenceDescription{refer(ua.NewStringNodeID(1, fmt.Sprint(n)), long, ua.NodeClassObject)}}
			},
		},
		{
			name: "long identifiers without end",
			browse: func(string) *ua.BrowseResult {
				return &ua.BrowseResult{ContinuationPoint: []byte{1}, References: children("a", 1, "a", ua.NodeClassObject).References}
			},
			next: func(n int) *ua.BrowseResult {
				return &ua.BrowseResult{ContinuationPoint: []byte{1}, References: children(fmt.Sprint(n, tall, tall, tall, tall, tall, tall, tall, tall, tall), 30, "a", ua.NodeClassObject).References}
			},
		},
		{
			name: "large values of what describes a channel",
			browse: func(id string) *ua.BrowseResult {
				if id == "i=85" {
					return children("v", 300, "v", ua.NodeClassVariable)
				}
				if strings.Count(id, ".") < 2 {
					return children(strings.TrimPrefix(id, "ns=1;s="), 30, "v", ua.NodeClassVariable)
				}
				return &ua.BrowseResult{}
			},
			value: func(n *ua.ReadValueID) *ua.DataValue {
				switch {
				case n.NodeID.String() == "i=11705":
					return goodValue(uint32(1))
				case n.AttributeID == ua.AttributeIDDataType || n.AttributeID == ua.AttributeIDValueRank:
					return goodValue(long)
				}
				return nil
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			nexts := 0
			f.answer = func(request any) any {
				switch r := request.(type) {
				case *ua.BrowseRequest:
					reply := &ua.BrowseResponse{ResponseHeader: ok()}
					for _, n := range r.NodesToBrowse {
						result := &ua.BrowseResult{}
						if n.BrowseDirection == ua.BrowseDirectionForward {
							result = c.browse(n.NodeID.String())
						}
						reply.Results = append(reply.Results, result)
					}
					return reply
				case *ua.BrowseNextRequest:
					reply := &ua.BrowseNextResponse{ResponseHeader: ok()}
					for range r.ContinuationPoints {
						nexts++
						reply.Results = append(reply.Results, c.next(nexts))
					}
					return reply
				case *ua.ReadRequest:
					reply := &ua.ReadResponse{ResponseHeader: ok()}
					for _, n := range r.NodesToRead {
						var value *ua.DataValue
						if c.value != nil {
							value = c.value(n)
						}
						if id := n.NodeID.String(); value == nil && (id == "i=11705" || id == "i=11710") {
							// The fixture takes requests of one chunk.
							value = goodValue(uint32(50))
						}
						if value == nil {
							value = f.value(n)
						}
						reply.Results = append(reply.Results, value)
					}
					return reply
				}
				return nil
			}
			f.spoil = func(_ string, reply []byte) []byte { return inChunks(reply) }
			f.serve()
			config := f.plain()
			config.Timeout = 10 * time.Second
			dev := opened(t, testDriver(Options{}), config)
			if _, err := dev.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			var list driver.ChannelList
			var err error
			began := time.Now()
			grew := heapDuring(func() { list, err = dev.Channels(ctx, 0) })
			t.Logf("%d MiB, %d channels after %s: %v", grew, len(list.Items), time.Since(began), err)
			if grew > 160 {
				t.Errorf("it took %d MiB", grew)
			}
			for _, item := range list.Items {
				if len(item.Name) > 4096 || len(item.Address) > 8192 {
					t.Fatalf("a name of %d bytes, an address of %d", len(item.Name), len(item.Address))
				}
			}
		})
	}
}

// inChunks cuts a message that is too long for one chunk.
func inChunks(chunk []byte) []byte {
	const room = 60_000
	if len(chunk) <= 24+room || string(chunk[:3]) != "MSG" {
		return chunk
	}
	var all []byte
	for body := chunk[24:]; len(body) > 0; {
		part := body[:min(room, len(body))]
		body = body[len(part):]
		c := rebody(chunk, part)
		if len(body) > 0 {
			c[3] = 'C'
		}
		all = append(all, c...)
	}
	return all
}

// Req: P-13 (a hostile device)
func TestALargeArrayBecomesNoLargerInMemory(t *testing.T) {
	for _, nested := range []bool{false, true} {
		f := newFixture(t)
		f.spoil = func(stage string, reply []byte) []byte {
			if stage != "Read" {
				return reply
			}
			const n = 3 << 20
			body := append([]byte{}, reply[24:]...)
			// One value, which is an array of booleans, or of arrays of them.
			at := 4 + 8 + 4 + 4 + 1 + 4 + 3
			body = append(body[:at:at], 1, 0, 0, 0, 1)
			if nested {
				body = append(body, 0x80|byte(ua.TypeIDVariant))
				body = binary.LittleEndian.AppendUint32(body, n/1024)
				for range n / 1024 {
					body = append(body, 0x80|byte(ua.TypeIDBoolean))
					body = binary.LittleEndian.AppendUint32(body, 1019)
					body = append(body, make([]byte, 1019)...)
				}
			} else {
				body = append(body, 0x80|byte(ua.TypeIDBoolean))
				body = binary.LittleEndian.AppendUint32(body, n)
				body = append(body, make([]byte, n)...)
			}
			return inChunks(append(reply[:24:24], body...))
		}
		f.serve()
		config := f.plain()
		config.Timeout = time.Minute
		dev := opened(t, testDriver(Options{}), config)
		grew := heapDuring(func() {
			if _, err := dev.Check(t.Context()); driver.ReasonOf(err) != driver.ReasonProtocolError {
				t.Errorf("nested %v: %v, want ProtocolError", nested, err)
			}
		})
		if grew > 64 {
			t.Errorf("nested %v: %d MiB for 3 MiB", nested, grew)
		}
	}
}

// Req: P-13 (a hostile device: talking without being asked neither keeps a connection, nor takes a core)
func TestAServerThatSpeaksWithoutBeingAskedIsHungUpOn(t *testing.T) {
	f := newFixture(t)
	var flooded atomic.Int64
	f.spoil = func(stage string, reply []byte) []byte {
		if stage != "Read" {
			return reply
		}
		flood := append([]byte{}, reply...)
		binary.LittleEndian.PutUint32(flood[20:], 0xFFFF_0000) // the id of no request
		flood = []byte(strings.Repeat(string(flood), 2000))
		f.mu.Lock()
		defer f.mu.Unlock()
		for conn := range f.conns {
			for range 400 {
				n, err := conn.Write(flood)
				flooded.Add(int64(n))
				if err != nil {
					return nil
				}
			}
		}
		return nil
	}
	f.serve()
	config := f.plain()
	config.Timeout = 10 * time.Second
	dev := opened(t, testDriver(Options{}), config)
	began := time.Now()
	_, err := dev.Check(t.Context())
	if driver.ReasonOf(err) != driver.ReasonProtocolError {
		t.Errorf("%v, want ProtocolError", err)
	}
	t.Logf("%d MiB after %s: %v", flooded.Load()>>20, time.Since(began), err)
	if n := flooded.Load(); n > 32<<20 {
		t.Errorf("%d MiB were taken", n>>20)
	}
}
