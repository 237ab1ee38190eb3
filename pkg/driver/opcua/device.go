package opcua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// The nodes of every server that are read (OPC 10000-5).
const (
	nodeNamespaceArray   = 2255
	nodeServer           = 2253
	nodeServerState      = 2259
	nodeProductName      = 2261
	nodeManufacturerName = 2263
	nodeSoftwareVersion  = 2264
	nodeBuildNumber      = 2265
)

// The nodes of OPC 10000-100 that tell a serial number.
const (
	namespaceDI   = "http://opcfoundation.org/UA/DI/"
	nodeDeviceSet = 5001
	// maxDevices of a DeviceSet are asked for their serial number.
	maxDevices = 16
)

// expiringWithin is how long before its end a server's certificate is told to expire.
const expiringWithin = 30 * 24 * time.Hour

// states maps ServerState to what an operator should know: whether it is a fault, and the NE 107 signal of a server that runs on.
var states = [...]struct {
	name   string
	fault  bool
	health driver.Health
}{
	0: {"Running", false, driver.HealthNormal},
	1: {"Failed", true, driver.HealthFailure},
	2: {"NoConfiguration", false, driver.HealthFailure},
	3: {"Suspended", false, driver.HealthFunctionCheck},
	4: {"Shutdown", true, driver.HealthFailure},
	5: {"Test", false, driver.HealthFunctionCheck},
	6: {"CommunicationFault", false, driver.HealthFailure},
	7: {"Unknown", false, driver.HealthNormal},
}

// device is one module's share of a session.
type device struct {
	connection *connection
	timeout    time.Duration
	channels   []driver.Channel
	now        func() time.Time
	release    func()
	closeOnce  sync.Once
}

var _ driver.Device = &device{}

// Check implements driver.Device: it reads the server's state.
func (d *device) Check(ctx context.Context) (driver.Answer, error) {
	answer := driver.Answer{Health: driver.HealthNormal}
	err := d.connection.do(ctx, d.timeout, true, func(ctx context.Context, s *session) error {
		samples, err := s.read(ctx, []attribute{{node: numeric(nodeServerState), id: ua.AttributeIDValue}}, d.timeout)
		if err != nil {
			return err
		}
		answer, err = d.answer(s, samples[0])
		return err
	})
	if failure, ok := errors.AsType[*driver.Error](err); ok && failure.Answered {
		return driver.Answer{
			Reason:  failure.Reason,
			Message: fmt.Sprintf("the server answers, and refuses to tell its state: %v", failure.Err),
			Health:  driver.HealthNormal,
		}, nil
	}
	if err != nil {
		return driver.Answer{}, err
	}
	return answer, nil
}

// answer is what the state says, and the server's certificate.
func (d *device) answer(s *session, state sample) (driver.Answer, error) {
	answer := driver.Answer{Health: driver.HealthNormal}
	n, ok := state.value.(int32)
	switch {
	case state.bad():
		m := meaningOf(state.status)
		answer.Reason, answer.Message = m.reason, "the server answers, and refuses to tell its state: "+statusText(state.status)
		return answer, nil
	case !ok || n < 0 || int(n) >= len(states):
		return answer, s.malformed("a server state that is none")
	case states[n].fault:
		return answer, &driver.Error{Reason: driver.ReasonServerNotRunning, Err: fmt.Errorf("the server's state is %s", states[n].name)}
	case n != 0:
		answer.Reason, answer.Message = driver.ReasonServerNotRunning, "the server answers, and its state is "+states[n].name
		answer.Health = states[n].health
		return answer, nil
	}
	if remote := s.security.remote; remote != nil && remote.NotAfter.Sub(d.now()) < expiringWithin {
		answer.Reason, answer.Health = driver.ReasonCertificateExpiring, driver.HealthMaintenanceRequired
		answer.Message = "the server's certificate ends on " + remote.NotAfter.UTC().Format(time.DateOnly)
		return answer, nil
	}
	if s.offer != nil {
		answer.Message = elsewhere(s.offer.url, d.connection.opener.hostPort)
	}
	return answer, nil
}

// elsewhere tells that a server advertises another host than the one by which it is reached (akri#624): no harm to us, who go on
// dialling the latter, and good to know for whoever sets up another client.
func elsewhere(advertised, hostPort string) string {
	other, err := ParseEndpoint(advertised)
	if err != nil || strings.EqualFold(other, hostPort) {
		return ""
	}
	return fmt.Sprintf("the server advertises itself as %s, and is reached at %s", clip(other, maxHost), hostPort)
}

// maxHost is how long a host name is told to be at most; that of DNS has 253 characters.
const maxHost = 253

// Identify implements driver.Device by the server's BuildInfo and, where the server has devices by OPC 10000-100, the serial number of the
// only one.
func (d *device) Identify(ctx context.Context) (driver.Identity, error) {
	var id driver.Identity
	err := d.connection.do(ctx, 3*d.timeout, true, func(ctx context.Context, s *session) error {
		nodes := []uint32{nodeManufacturerName, nodeProductName, nodeSoftwareVersion, nodeBuildNumber}
		var attributes []attribute
		for _, node := range nodes {
			attributes = append(attributes, attribute{node: numeric(node), id: ua.AttributeIDValue})
		}
		samples, err := s.read(ctx, attributes, d.timeout)
		if err != nil {
			return err
		}
		var texts []string
		for _, sample := range samples {
			text, _ := sample.value.(string)
			texts = append(texts, printable(text))
		}
		id = driver.Identity{Vendor: texts[0], Product: texts[1], Revision: texts[2]}
		if id.Revision == "" {
			id.Revision = texts[3]
		}
		id.Serial, err = d.serial(ctx, s)
		if err != nil && !linkError(err, d.connection.opener.hostPort, "").Answered {
			return err
		}
		// A server that does not tell its devices is identified all the same.
		return nil
	})
	return id, err
}

// serial is the serial number of the only device in the server's DeviceSet, or "".
func (d *device) serial(ctx context.Context, s *session) (string, error) {
	namespace := slices.Index(s.namespaces, namespaceDI)
	if namespace < 0 {
		return "", nil
	}
	b := newBrowser(s, d.timeout, 1)
	set := nodeID{namespace: uint16(namespace), kind: 'i', number: nodeDeviceSet}
	devices, err := b.references(ctx, []nodeID{set})
	if err != nil {
		return "", err
	}
	var nodes []nodeID
	for _, r := range devices[0] {
		if r.class == classObject && len(nodes) < maxDevices {
			nodes = append(nodes, r.target)
		}
	}
	if len(nodes) == 0 {
		return "", nil
	}
	members, err := b.references(ctx, nodes)
	if err != nil {
		return "", err
	}
	var attributes []attribute
	for _, references := range members {
		for _, r := range references {
			if r.name == "SerialNumber" && r.class == classVariable {
				attributes = append(attributes, attribute{node: r.target, id: ua.AttributeIDValue})
			}
		}
	}
	if len(attributes) == 0 {
		return "", nil
	}
	samples, err := b.attributes(ctx, attributes)
	if err != nil {
		return "", err
	}
	serial := ""
	for _, sample := range samples {
		text, _ := sample.value.(string)
		if text = printable(text); text == "" || sample.bad() {
			continue
		}
		if serial != "" && serial != text {
			// Several devices behind one server: none of them is the module.
			return "", nil
		}
		serial = text
	}
	return serial, nil
}

// Write implements driver.Device. The value is never sent twice: what happened to a request whose reply was lost is not known.
func (d *device) Write(ctx context.Context, channel driver.Channel, value any) error {
	if channel.Count > 1 {
		return channel.Array()
	}
	a, err := parseAddress(channel.Address)
	if err != nil {
		return channelError(channel, err)
	}
	var v *ua.Variant
	// Reading first also finds out that a connection was lost, so that the write meets one that lives.
	err = d.connection.do(ctx, d.timeout, true, func(ctx context.Context, s *session) error {
		node, err := resolve(s, a)
		if err != nil {
			return err
		}
		t, err := d.typeOf(ctx, s, node)
		if err != nil {
			return err
		}
		v, err = variantOf(value, t)
		return err
	})
	if err == nil {
		err = d.connection.do(ctx, d.timeout, false, func(ctx context.Context, s *session) error {
			node, err := resolve(s, a)
			if err != nil {
				return err
			}
			return s.write(ctx, node, v, d.timeout)
		})
	}
	if err != nil {
		return named(channel, err)
	}
	return nil
}

// typeOf is the built-in type that the node takes.
func (d *device) typeOf(ctx context.Context, s *session, node nodeID) (ua.TypeID, error) {
	samples, err := s.read(ctx, []attribute{{node: node, id: ua.AttributeIDValue}, {node: node, id: ua.AttributeIDDataType}}, d.timeout)
	if err != nil {
		return 0, err
	}
	if v := samples[0]; !v.bad() && v.typeID != 0 {
		if v.array {
			return 0, answered(driver.ReasonNotSupported, "the node holds an array, and only single values are written")
		}
		return v.typeID, nil
	}
	if samples[1].bad() {
		return 0, statusError(samples[1].status)
	}
	// The node may be written and not read, or has no value yet.
	declared, _ := samples[1].value.(nodeID)
	types, err := newBrowser(s, d.timeout, 1).builtins(ctx, []nodeID{declared})
	if err != nil {
		return 0, err
	}
	return types[declared], nil
}

// write writes a node's value, without a status or a time: many servers take neither.
func (s *session) write(ctx context.Context, node nodeID, value *ua.Variant, timeout time.Duration) error {
	d, err := s.request(ctx, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{
		NodeID: node.ua(), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: value},
	}}}, writeResponse, timeout)
	if err != nil {
		return err
	}
	if d.count(4) != 1 {
		return s.malformed("not one result of one write")
	}
	status := d.status()
	if d.err != nil {
		return s.malformed("the result of a write")
	}
	if uint32(status)>>30 >= 2 {
		return statusError(status)
	}
	return nil
}

// Close implements driver.Device.
func (d *device) Close() error {
	d.closeOnce.Do(d.release)
	return nil
}

// resolve finds an address in a session; one that is not there concerns this channel only.
func resolve(s *session, a address) (nodeID, error) {
	node, err := a.resolve(s.namespaces)
	if err != nil {
		return node, answered(driver.ReasonConfigurationError, "the server has no namespace %q", a.uri)
	}
	return node, nil
}

// statusError is the status of one node, which the server answered and which says nothing of the link.
func statusError(status ua.StatusCode) *driver.Error {
	m := meaningOf(status)
	if !m.answered {
		// Such as BadTimeout of a device behind the server: the server itself is there.
		m.reason = driver.ReasonDeviceFailure
	}
	return answered(m.reason, "the server answers %s", statusText(status))
}

// named puts the channel's name before an error's cause.
func named(channel driver.Channel, err error) error {
	if failure, ok := errors.AsType[*driver.Error](err); ok && failure.Answered {
		return ofChannel(channel, failure)
	}
	return err
}

func ofChannel(channel driver.Channel, failure *driver.Error) *driver.Error {
	return &driver.Error{Reason: failure.Reason, Answered: failure.Answered, Err: fmt.Errorf("channel %q: %w", channel.Name, failure.Err)}
}
