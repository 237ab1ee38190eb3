package opcua

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxLevels is how deep below Objects a channel may lie.
	maxLevels = 20
	// discoveryTime bounds a discovery as a whole, browsingTime the search in it: what was found by then is still described.
	discoveryTime = 60 * time.Second
	browsingTime  = 40 * time.Second
	// maxVisited bounds the nodes that are looked at: a server may have objects without end and not one variable.
	maxVisited = 200_000
	// slice is how many nodes are browsed between two looks at the clock.
	slice = 2000
	// maxName bounds one element of a channel's path, and maxPath the whole of it in bytes.
	maxName = 128
	maxPath = 1024
)

// The properties that describe a channel (OPC 10000-8).
var describing = [...]string{"EURange", "InstrumentRange", "EngineeringUnits"}

// The binary encodings of the structures that describe a channel.
const (
	encodingRange         = 886
	encodingEUInformation = 889
)

// found is a variable on its way to become a channel.
type found struct {
	node nodeID
	path string
	// properties are the nodes of the describing properties, by their place among them.
	properties [len(describing)]nodeID
	declared   *driver.Channel
}

// visit is a node to be browsed; variable is its place among the found ones, or -1.
type visit struct {
	node     nodeID
	at       *place
	variable int
}

// place is a node's name and where it lies. Paths are made of the places of variables alone: those of 200,000 objects would
// take more than all that the server told.
type place struct {
	within *place
	name   string
}

// path is the place as it is shown, its beginning if it is too long.
func (p *place) path() string {
	var names []string
	for ; p != nil; p = p.within {
		names = append(names, p.name)
	}
	slices.Reverse(names)
	path := strings.Join(names, "/")
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "")
	}
	return path
}

// Channels implements driver.Device by browsing the server's Objects.
func (d *device) Channels(ctx context.Context, limit int) (driver.ChannelList, error) {
	if limit <= 0 || limit > driver.MaxChannels {
		limit = driver.MaxChannels
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	select {
	case d.connection.browsing <- struct{}{}:
		defer func() { <-d.connection.browsing }()
	case <-ctx.Done():
		return driver.ChannelList{}, &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("no turn to browse %s: %w", d.connection.opener.hostPort, ctx.Err())}
	}
	var list driver.ChannelList
	err := d.connection.do(ctx, discoveryTime, true, func(ctx context.Context, s *session) error {
		b := newBrowser(s, d.timeout, 0)
		err := b.learnLimits(ctx)
		if err != nil {
			return err
		}
		list, err = d.discover(ctx, b, limit)
		return err
	})
	return list, err
}

// discover finds the variables and describes them.
func (d *device) discover(ctx context.Context, b *browser, limit int) (list driver.ChannelList, err error) {
	all, truncated, err := search(ctx, b, limit)
	if err != nil {
		return list, err
	}
	list.Truncated = truncated || b.incomplete > 0

	// The declared ones are listed whether they were found or not.
	index := make(map[nodeID]int, len(all))
	for i := range all {
		index[all[i].node] = i
	}
	for i := range d.channels {
		channel := &d.channels[i]
		a, err := parseAddress(channel.Address)
		if err != nil {
			return list, channelError(*channel, err)
		}
		node, err := a.resolve(b.session.namespaces)
		if err != nil {
			list.Items = append(list.Items, driver.ChannelInfo{
				Name: channel.Name, Address: channel.Address, DataType: channel.DataType, Declared: true,
				Problem: driver.ReasonConfigurationError, Message: fmt.Sprintf("the server has no namespace %q", a.uri),
			})
			continue
		}
		if at, ok := index[node]; ok && all[at].declared == nil {
			all[at].declared = channel
			continue
		}
		index[node] = len(all)
		all = append(all, found{node: node, path: channel.Name, declared: channel})
	}
	items, err := describe(ctx, b, all)
	if err != nil {
		return list, err
	}
	list.Items = append(list.Items, items...)
	if len(list.Items) > limit {
		// Only the declared ones can be too many; they come first.
		slices.SortStableFunc(list.Items, func(x, y driver.ChannelInfo) int { return cmp.Compare(rank(x), rank(y)) })
		list.Items, list.Truncated = list.Items[:limit], true
	}
	slices.SortFunc(list.Items, func(x, y driver.ChannelInfo) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Address, y.Address))
	})
	return list, nil
}

func rank(c driver.ChannelInfo) int {
	if c.Declared {
		return 0
	}
	return 1
}

// search walks the address space level by level, and finds at most limit variables.
func search(ctx context.Context, b *browser, limit int) (all []found, truncated bool, err error) {
	until := time.Now().Add(browsingTime)
	visited := map[nodeID]struct{}{numeric(nodeObjects): {}, numeric(nodeServer): {}}
	level := []visit{{node: numeric(nodeObjects), variable: -1}}
	for depth := 0; len(level) > 0; depth++ {
		var next []visit
		for part := range slices.Chunk(level, slice) {
			if time.Now().After(until) || b.taken() > maxBrowsed {
				return all, true, nil
			}
			nodes := make([]nodeID, len(part))
			for i, v := range part {
				nodes[i] = v.node
			}
			references, err := b.references(ctx, nodes)
			if err != nil {
				return nil, false, err
			}
			for i, from := range part {
				for _, r := range references[i] {
					if r.kind == numeric(referenceHasProperty) {
						if from.variable >= 0 {
							if place := slices.Index(describing[:], r.name); place >= 0 {
								all[from.variable].properties[place] = r.target
							}
						}
						continue
					}
					if r.class != classObject && r.class != classVariable {
						continue
					}
					if _, ok := visited[r.target]; ok {
						continue
					}
					if depth >= maxLevels || len(visited) >= maxVisited {
						truncated = true
						continue
					}
					to := visit{node: r.target, at: &place{within: from.at, name: r.name}, variable: -1}
					if r.class == classVariable {
						if len(all) == limit {
							truncated = true
							continue
						}
						to.variable = len(all)
						all = append(all, found{node: to.node, path: to.at.path()})
					}
					visited[r.target] = struct{}{}
					next = append(next, to)
				}
			}
		}
		if len(all) == limit {
			// Only what is found already is of interest, for its properties; that there is more is found out on the way.
			next = slices.DeleteFunc(next, func(v visit) bool { return v.variable < 0 && truncated })
		}
		level = next
	}
	return all, truncated, nil
}

// describe reads what makes channels of variables.
func describe(ctx context.Context, b *browser, all []found) ([]driver.ChannelInfo, error) {
	const each = 3
	attributes := make([]attribute, 0, each*len(all))
	for i := range all {
		for _, id := range [each]ua.AttributeID{ua.AttributeIDDataType, ua.AttributeIDValueRank, ua.AttributeIDUserAccessLevel} {
			attributes = append(attributes, attribute{node: all[i].node, id: id})
		}
	}
	samples, err := b.attributes(ctx, attributes)
	if err != nil {
		return nil, err
	}
	types, err := b.types(ctx, samples, each)
	if err != nil {
		return nil, err
	}

	items := make([]driver.ChannelInfo, len(all))
	var arrays []int
	var dimensions []attribute
	for i := range all {
		item := &items[i]
		item.Name, item.Address = all[i].path, all[i].node.address(b.session.namespaces)
		dataType, valueRank, access := samples[each*i], samples[each*i+1], samples[each*i+2]
		if declared := all[i].declared; declared != nil {
			item.Declared = true
			item.Name = declared.Name
		}
		if dataType.bad() {
			m := statusError(dataType.status)
			item.Problem, item.Message = m.Reason, m.Err.Error()
		}
		if id, ok := dataType.value.(nodeID); ok {
			item.DataType, item.DeviceType = types[id].ours, types[id].name
		}
		if declared := all[i].declared; declared != nil && declared.DataType != "" {
			item.DataType = declared.DataType
		}
		if rank, ok := valueRank.value.(int32); ok && rank == -1 {
			item.Count = 1
		} else if ok && rank >= 0 {
			arrays = append(arrays, i)
			dimensions = append(dimensions, attribute{node: all[i].node, id: ua.AttributeIDArrayDimensions})
		}
		if level, ok := access.value.(byte); ok {
			item.Access = accessOf(level)
		}
	}
	if samples, err = b.attributes(ctx, dimensions); err != nil {
		return nil, err
	}
	for i, s := range samples {
		items[arrays[i]].Count = elements(s)
	}
	return items, b.units(ctx, all, items)
}

// accessOf is what the user may do, by the bits CurrentRead and CurrentWrite of UserAccessLevel.
func accessOf(level byte) driver.Access {
	switch level & 3 {
	case 1:
		return driver.AccessRead
	case 2:
		return driver.AccessWrite
	case 3:
		return driver.AccessReadWrite
	default:
		return ""
	}
}

// elements is the product of an array's dimensions, and 0 where one of them is open.
func elements(dimensions sample) int {
	sizes, _ := dimensions.value.([]any)
	if len(sizes) == 0 {
		return 0
	}
	product := uint64(1)
	for _, size := range sizes {
		n, _ := size.(uint32)
		if product *= uint64(n); product > math.MaxInt32 {
			return 0
		}
	}
	return int(product)
}

// dataType is a data type as it is shown, and what it is to us.
type dataType struct {
	ours driver.DataType
	name string
}

// types resolves the data types among the samples, of which every each-th is one.
func (b *browser) types(ctx context.Context, samples []sample, each int) (map[nodeID]dataType, error) {
	var ids []nodeID
	types := map[nodeID]dataType{}
	for i := 0; i < len(samples); i += each {
		if id, ok := samples[i].value.(nodeID); ok {
			if _, known := types[id]; !known {
				types[id] = dataType{}
				ids = append(ids, id)
			}
		}
	}
	builtins, err := b.builtins(ctx, ids)
	if err != nil {
		return nil, err
	}
	var unnamed []nodeID
	var names []attribute
	for _, id := range ids {
		t := dataType{ours: dataTypes[builtins[id]]}
		if n, ok := builtinOf(id); ok && id.number <= 25 {
			t.name = typeName(n)
		} else {
			unnamed = append(unnamed, id)
			names = append(names, attribute{node: id, id: ua.AttributeIDBrowseName})
		}
		types[id] = t
	}
	named, err := b.attributes(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, s := range named {
		id := unnamed[i]
		t := types[id]
		if t.name, _ = s.value.(string); t.name == "" {
			t.name = id.address(b.session.namespaces)
		}
		t.name = printable(t.name)
		types[id] = t
	}
	return types, nil
}

// units reads the describing properties.
func (b *browser) units(ctx context.Context, all []found, items []driver.ChannelInfo) error {
	var attributes []attribute
	var owners []int
	for i := range all {
		// The range of the values is worth more than that of the instrument.
		limits := all[i].properties[0]
		if limits == (nodeID{}) {
			limits = all[i].properties[1]
		}
		for _, node := range [...]nodeID{limits, all[i].properties[2]} {
			if node != (nodeID{}) {
				attributes = append(attributes, attribute{node: node, id: ua.AttributeIDValue})
				owners = append(owners, i)
			}
		}
	}
	samples, err := b.attributes(ctx, attributes)
	if err != nil {
		return err
	}
	for i, s := range samples {
		x, ok := s.value.(extensionObject)
		if !ok || s.bad() {
			continue
		}
		item := &items[owners[i]]
		in := decoder{b: x.body}
		switch x.encoding {
		case numeric(encodingRange):
			limits := driver.Range{Low: in.f64(), High: in.f64()}
			// JSON has neither infinities nor NaN.
			if in.err == nil && finite(limits.Low) && finite(limits.High) {
				item.Range = &limits
			}
		case numeric(encodingEUInformation):
			in.bytes()
			code := int32(in.u32())
			name := in.localizedText()
			if in.err == nil {
				item.Unit = unitOf(code, name)
			}
		}
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// unitOf is the unit's name as shown, or the UNECE code that its id spells (OPC 10000-8, 5.6.3.3).
func unitOf(code int32, name string) string {
	if name = printable(name); name != "" || code <= 0 {
		return name
	}
	var text []byte
	for shift := 16; shift >= 0; shift -= 8 {
		if c := byte(code >> shift); c > ' ' && c <= '~' {
			text = append(text, c)
		}
	}
	return string(text)
}
