package opcua

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/gopcua/opcua/ua"
)

// The nodes and references that browsing rests on (OPC 10000-5).
const (
	nodeObjects                   = 85
	nodeMaxBrowseContinuation     = 2735
	nodeMaxNodesPerRead           = 11705
	nodeMaxNodesPerBrowse         = 11710
	referenceHierarchical         = 33
	referenceHasSubtype           = 45
	referenceHasProperty          = 46
	classObject                   = 1
	classVariable                 = 2
	resultMask                    = 1 | 4 | 8 // ReferenceTypeId, NodeClass, BrowseName
	maxReferencesPerNode          = 1000
	maxRoundsWithoutReference     = 3
	requestsOfDiscoveryPerTimeout = 5
	// maxReferences bounds what is kept at once, and maxBrowsed how many bytes all that is browsed may have. What does not
	// fit is missing, and told. A server of 10,000 variables has some 5 MiB to tell.
	maxReferences = 2 * maxVisited
	maxBrowsed    = 48 << 20
	// maxDescribed bounds in the same way what describes what was found.
	maxDescribed = 32 << 20
)

// The batches: what a server that names no limit is asked for at first, and at most. A batch grows while the server
// answers at once, and shrinks when it takes long or refuses: a controller that chews on one request answers no other.
const (
	firstBrowse = 50
	firstRead   = 100
	maxBatch    = 1000
	quick       = 100 * time.Millisecond
	slow        = 400 * time.Millisecond
)

// batch is how many operations go into one request.
type batch struct {
	size, limit int
	// least is what slowness alone does not go below: many small requests would only make a busy server busier.
	least int
}

// newBatch starts at first, within a server's limit; 0 is no limit.
func newBatch(first int, limit uint32) batch {
	b := batch{size: first, limit: maxBatch, least: first}
	if limit > 0 {
		// What a server says of itself is taken at once.
		b.limit = int(min(limit, maxBatch))
		b.size = b.limit
	}
	return b
}

// answered learns from how long a request took.
func (b *batch) answered(took time.Duration) {
	switch {
	case took < quick:
		b.size = min(2*b.size, b.limit)
	case took > slow:
		b.size = min(b.limit, max(b.least, b.size/2, 1))
	}
}

// refused learns that a request was too large; false says that it cannot be smaller.
func (b *batch) refused(n int) bool {
	if n <= 1 {
		return false
	}
	b.limit = n / 2
	b.size = min(b.size, b.limit)
	return true
}

// reference is one reference of a node to another of the same server.
type reference struct {
	kind   nodeID
	target nodeID
	name   string
	class  uint32
}

// browser browses a session in batches. Only one at a time may use a session: continuation points are the session's.
type browser struct {
	session *session
	timeout time.Duration
	browse  batch
	read    batch
	// points is how many continuation points the server has, 0 when it does not tell.
	points int
	// page is the least number of references after which the server stopped with a continuation point. As many
	// without one may mean that it had no points left, and does not tell.
	page int
	// incomplete counts the nodes whose references could not all be had.
	incomplete int
	// held is how many references are kept at once.
	held int
	// began is what the session had received when the browsing did.
	began int
}

func newBrowser(s *session, timeout time.Duration, size int) *browser {
	return &browser{
		session: s, timeout: requestsOfDiscoveryPerTimeout * timeout, began: s.taken(),
		browse: newBatch(max(size, firstBrowse), 0), read: newBatch(max(size, firstRead), 0),
	}
}

// taken is how many bytes the server has told so far.
func (b *browser) taken() int { return b.session.taken() - b.began }

// learnLimits reads the server's limits; a server that has none of these nodes has no limits.
func (b *browser) learnLimits(ctx context.Context) error {
	var limits [3]uint32
	for i, node := range [...]uint32{nodeMaxNodesPerBrowse, nodeMaxNodesPerRead, nodeMaxBrowseContinuation} {
		samples, err := b.session.read(ctx, []attribute{{node: numeric(node), id: ua.AttributeIDValue}}, b.timeout)
		if err != nil {
			return err
		}
		switch n := samples[0].value.(type) {
		case uint32:
			limits[i] = n
		case uint16:
			limits[i] = uint32(n)
		}
	}
	b.browse, b.read, b.points = newBatch(firstBrowse, limits[0]), newBatch(firstRead, limits[1]), int(min(limits[2], maxBatch))
	return nil
}

// tooLarge tells that a request would be answered if it were smaller.
func tooLarge(err error) bool {
	status, ok := errors.AsType[ua.StatusCode](err)
	if !ok {
		return errors.Is(err, context.DeadlineExceeded)
	}
	switch status & 0xFFFF0000 {
	case ua.StatusBadTooManyOperations, ua.StatusBadRequestTooLarge, ua.StatusBadResponseTooLarge, ua.StatusBadEncodingLimitsExceeded,
		ua.StatusBadTCPMessageTooLarge, ua.StatusBadOutOfMemory, ua.StatusBadTimeout, ua.StatusBadRequestTimeout:
		return true
	}
	return false
}

// attributes reads attributes in batches: it is attributes that servers count, not nodes.
func (b *browser) attributes(ctx context.Context, all []attribute) ([]sample, error) {
	samples := make([]sample, 0, len(all))
	for len(all) > 0 {
		n := min(b.read.size, len(all))
		started := time.Now()
		part, err := b.session.read(ctx, all[:n], b.timeout)
		if err != nil {
			if ctx.Err() == nil && tooLarge(err) && b.read.refused(n) {
				continue
			}
			return nil, err
		}
		b.read.answered(time.Since(started))
		if b.taken() > maxBrowsed+maxDescribed {
			return nil, b.session.malformed("more than %d MiB to describe the channels", (maxBrowsed+maxDescribed)>>20)
		}
		for i := range part {
			part[i].value = slim(part[i].value)
		}
		samples = append(samples, part...)
		all = all[n:]
	}
	return samples, nil
}

// maxTold is how long a text may be that describes a channel, and maxDimensions how many elements an array.
const (
	maxTold       = 4096
	maxDimensions = 64
)

// slim is a value without what no description of a channel needs: thousands of them are kept at once.
func slim(value any) any {
	switch v := value.(type) {
	case string:
		if len(v) > maxTold {
			return nil
		}
	case []byte:
		return nil
	case nodeID:
		if len(v.text) > maxIdentifier {
			return nil
		}
	case extensionObject:
		if len(v.body) > maxTold || len(v.encoding.text) > maxIdentifier {
			return nil
		}
		// It would keep the whole message.
		return extensionObject{encoding: v.encoding, body: bytes.Clone(v.body)}
	case []any:
		if len(v) > maxDimensions {
			return nil
		}
		slimmed := make([]any, len(v))
		for i, element := range v {
			if n, ok := element.(uint32); ok {
				slimmed[i] = n
			}
		}
		return slimmed
	case variant:
		return nil
	case sample:
		return nil
	}
	return value
}

// references is what each of the nodes refers to forward, hierarchically; a node that may not be browsed has none.
func (b *browser) references(ctx context.Context, nodes []nodeID) ([][]reference, error) {
	b.held = 0
	result := make([][]reference, len(nodes))
	todo := make([]int, len(nodes))
	for i := range todo {
		todo[i] = i
	}
	again, err := b.pass(ctx, nodes, todo, result, &b.browse, false)
	if err != nil || len(again) == 0 {
		return result, err
	}
	// The server ran out of continuation points: from now on no more nodes at once than it has points, and if it does
	// not tell, one.
	few := batch{size: max(1, b.points), limit: max(1, b.points)}
	b.browse.limit = min(b.browse.limit, max(few.limit, 1))
	b.browse.size = min(b.browse.size, b.browse.limit)
	if few.size > 1 {
		if again, err = b.pass(ctx, nodes, again, result, &few, false); err != nil {
			return nil, err
		}
	}
	if len(again) == 0 {
		return result, nil
	}
	again, err = b.pass(ctx, nodes, again, result, &batch{size: 1, limit: 1}, true)
	b.incomplete += len(again)
	return result, err
}

// pass browses the nodes at the indexes todo, and returns those that have to be browsed again, in smaller company.
// The last pass is alone with each node, and takes what it gets.
func (b *browser) pass(ctx context.Context, nodes []nodeID, todo []int, result [][]reference, size *batch, last bool) (again []int, err error) {
	for len(todo) > 0 {
		if b.full() {
			b.incomplete += len(todo)
			return nil, nil
		}
		n := min(size.size, len(todo))
		started := time.Now()
		missed, err := b.once(ctx, nodes, todo[:n], result, last)
		if err != nil {
			if ctx.Err() == nil && tooLarge(err) && size.refused(n) {
				continue
			}
			return nil, err
		}
		size.answered(time.Since(started))
		again = append(again, missed...)
		todo = todo[n:]
		if len(missed) > 0 && !last && b.points > 0 {
			size.limit = min(size.limit, b.points)
			size.size = min(size.size, size.limit)
		}
	}
	return again, nil
}

// full tells that no more references are taken in.
func (b *browser) full() bool { return b.held >= maxReferences || b.taken() > maxBrowsed }

// point is a continuation point of the node at an index.
type point struct {
	index int
	value []byte
}

// once is one Browse, and the BrowseNext that finish it: a server has few continuation points, and until they are used up or
// released it may refuse every other Browse.
func (b *browser) once(ctx context.Context, nodes []nodeID, todo []int, result [][]reference, last bool) (again []int, err error) {
	d, err := b.session.request(ctx, browseRequest{nodes: nodes, todo: todo}, browseResponse, b.timeout)
	if err != nil {
		return nil, err
	}
	var points []point
	defer func() {
		if err != nil {
			b.release(ctx, points)
		}
	}()
	missed := map[int]bool{}
	take := func(index int) error {
		status, value, references := d.browseResult()
		if d.err != nil {
			return b.session.malformed("references")
		}
		switch {
		case uint32(status)>>30 < 2:
			if left := maxReferences - b.held; len(references) > left {
				references = references[:left:left]
				b.incomplete++
			}
			b.held += len(references)
			result[index] = append(result[index], references...)
			if value != nil {
				points = append(points, point{index, value})
				if n := len(references); n > 0 && (b.page == 0 || n < b.page) {
					b.page = n
				}
			}
		case status&0xFFFF0000 == ua.StatusBadNoContinuationPoints || status&0xFFFF0000 == ua.StatusBadContinuationPointInvalid:
			missed[index] = true
		}
		return nil
	}
	if n := d.count(9); n != len(todo) {
		return nil, b.session.malformed("%d nodes browsed where %d were asked for", n, len(todo))
	}
	for _, index := range todo {
		result[index] = nil
		if err := take(index); err != nil {
			return nil, err
		}
	}
	continued := map[int]bool{}
	for _, p := range points {
		continued[p.index] = true
	}
	for barren := 0; len(points) > 0; {
		n := min(len(points), max(1, b.browse.size))
		now := points[:n]
		next := &ua.BrowseNextRequest{ContinuationPoints: make([][]byte, n)}
		before := 0
		for i, p := range now {
			next.ContinuationPoints[i] = p.value
			before += len(result[p.index])
		}
		if d, err = b.session.request(ctx, next, browseNextResponse, b.timeout); err != nil {
			return nil, err
		}
		if d.count(9) != n {
			return nil, b.session.malformed("not as many continued as were asked for")
		}
		points = points[n:]
		after := 0
		for _, p := range now {
			if err := take(p.index); err != nil {
				return nil, err
			}
			after += len(result[p.index])
		}
		if barren++; after > before {
			barren = 0
		}
		if barren > maxRoundsWithoutReference*(1+len(points)) {
			return nil, b.session.malformed("continuation points without end")
		}
		if after > maxVisited || b.full() {
			b.release(ctx, points)
			points = nil
			b.incomplete++
		}
	}
	for _, index := range todo {
		// As many as fit on a page, and no point: whether that is all can only be told alone.
		if !last && len(todo) > 1 && b.page > 0 && !continued[index] && len(result[index]) == b.page {
			missed[index] = true
		}
		if missed[index] {
			if !last {
				result[index] = nil
			}
			again = append(again, index)
		}
	}
	return again, nil
}

// release gives continuation points back that nobody will ask for, even when the caller's time is over.
func (b *browser) release(ctx context.Context, points []point) {
	if len(points) == 0 || b.session.failure() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout/requestsOfDiscoveryPerTimeout)
	defer cancel()
	request := &ua.BrowseNextRequest{ReleaseContinuationPoints: true}
	for _, p := range points {
		request.ContinuationPoints = append(request.ContinuationPoints, p.value)
	}
	_, _ = b.session.request(ctx, request, browseNextResponse, b.timeout)
}

// browseResult reads one result of Browse or BrowseNext. References to other servers are left out.
func (d *decoder) browseResult() (status ua.StatusCode, value []byte, references []reference) {
	status = d.status()
	value = bytes.Clone(d.bytes())
	n := d.count(14)
	references = make([]reference, 0, min(n, maxReferencesPerNode))
	for range n {
		var r reference
		r.kind, _ = d.nodeID()
		d.u8()
		var uri string
		var server uint32
		r.target, uri, server = d.expandedNodeID()
		_, r.name = d.qualifiedName()
		r.name = clip(r.name, maxName)
		d.localizedText()
		r.class = d.u32()
		d.expandedNodeID()
		if d.err != nil {
			return status, nil, nil
		}

		if uri == "" && server == 0 && len(r.target.text) <= maxIdentifier && len(r.kind.text) <= maxIdentifier {
			references = append(references, r)
		}
	}
	return status, value, references
}

// maxIdentifier is the longest identifier that a NodeId may have (OPC 10000-3, 8.2.4).
const maxIdentifier = 4096

// builtins finds the built-in type behind each data type, by its supertypes; an abstract one has none.
func (b *browser) builtins(ctx context.Context, types []nodeID) (map[nodeID]ua.TypeID, error) {
	found := map[nodeID]ua.TypeID{}
	at := map[nodeID]nodeID{} // where each type's search has come to
	for _, t := range types {
		at[t] = t
	}
	for range maxDepth {
		var ask []nodeID
		asked := map[nodeID]int{}
		for t, here := range at {
			if builtin, ok := builtinOf(here); ok {
				found[t] = builtin
				delete(at, t)
			} else if _, ok := asked[here]; !ok {
				asked[here] = len(ask)
				ask = append(ask, here)
			}
		}
		if len(ask) == 0 {
			break
		}
		supertypes, err := b.supertypes(ctx, ask)
		if err != nil {
			return nil, err
		}
		for t, here := range at {
			super := supertypes[asked[here]]
			if super == (nodeID{}) {
				delete(at, t)
				continue
			}
			at[t] = super
		}
	}
	return found, nil
}

// builtinOf is the built-in type that a data type of namespace 0 is, or stands for.
func builtinOf(t nodeID) (ua.TypeID, bool) {
	if t.namespace != 0 || t.kind != 'i' {
		return 0, false
	}
	switch n := t.number; {
	case n >= 1 && n <= 25:
		return ua.TypeID(n), true
	case n == 29: // Enumeration
		return ua.TypeIDInt32, true
	case n == 26 || n == 27 || n == 28: // Number, Integer, UInteger: the value alone tells
		return ua.TypeIDVariant, true
	}
	return 0, false
}

// supertypes is the direct supertype of each type, and the zero NodeId where there is none.
func (b *browser) supertypes(ctx context.Context, types []nodeID) ([]nodeID, error) {
	var supertypes []nodeID
	for len(types) > 0 {
		n := min(b.browse.size, len(types))
		request := &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}}
		for _, t := range types[:n] {
			request.NodesToBrowse = append(request.NodesToBrowse, &ua.BrowseDescription{
				NodeID: t.ua(), BrowseDirection: ua.BrowseDirectionInverse, ReferenceTypeID: numeric(referenceHasSubtype).ua(), ResultMask: resultMask,
			})
		}
		d, err := b.session.request(ctx, request, browseResponse, b.timeout)
		if err != nil {
			if ctx.Err() == nil && tooLarge(err) && b.browse.refused(n) {
				continue
			}
			return nil, err
		}
		if d.count(9) != n {
			return nil, b.session.malformed("supertypes")
		}
		var points []point
		for range n {
			_, value, references := d.browseResult()
			super := nodeID{}
			if len(references) > 0 {
				super = references[0].target
			}
			if value != nil {
				points = append(points, point{value: value})
			}
			supertypes = append(supertypes, super)
		}
		if d.err != nil {
			return nil, b.session.malformed("supertypes")
		}
		b.release(ctx, points)
		types = types[n:]
	}
	return supertypes, nil
}
