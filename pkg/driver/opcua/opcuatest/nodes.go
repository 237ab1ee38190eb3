package opcuatest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gopcua/opcua/ua"
)

// Namespace is the URI of the variables' namespace, which has index 1.
const Namespace = "urn:fieldplane:plant"

// Variable is one variable of a server, with its description after OPC 10000-8.
type Variable struct {
	// Path is where it lies below Objects, such as Line/Mixer/Temperature; what is before the last slash are folders, or
	// variables of that path.
	Path string
	// Value is its value, of one of OPC UA's built-in types.
	Value any
	// Unit is its EngineeringUnits; without one it has none.
	Unit string
	// Low and High are its EURange; without a difference it has none.
	Low, High float64
	// Writable variables are not read-only.
	Writable bool
}

// NodeID is the NodeId of the variable at a path, as an IOModule's channel names it.
func NodeID(path string) string { return "nsu=" + Namespace + ";s=" + path }

// The nodes of namespace 0 that a client asks for (OPC 10000-6, annex A).
const (
	objectsFolder        = 85
	organizes            = 35
	hasComponent         = 47
	hasProperty          = 46
	namespaceArray       = 2255
	serverState          = 2259
	productName          = 2261
	manufacturerName     = 2263
	softwareVersion      = 2264
	maxNodesPerRead      = 11705
	maxNodesPerBrowse    = 11710
	typeRange            = 884
	typeEUInformation    = 887
	encodingRange        = 886
	encodingEUInformaton = 889
)

// operationLimit is how many nodes one request may name: servers in the field have limits, too.
const operationLimit = 40

// node is one node of the address space.
type node struct {
	id       *ua.NodeID
	name     string
	class    ua.NodeClass
	dataType *ua.NodeID
	value    *ua.Variant
	access   ua.AccessLevelType
	children []reference
}

type reference struct {
	kind uint32
	to   *node
}

func variable(id *ua.NodeID, name string, dataType uint32, value any) (*node, error) {
	v, err := ua.NewVariant(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if dataType == 0 {
		dataType = uint32(v.Type())
	}
	return &node{
		id: id, name: name, class: ua.NodeClassVariable, dataType: ua.NewNumericNodeID(0, dataType), value: v, access: ua.AccessLevelTypeCurrentRead,
	}, nil
}

// addressSpace makes the nodes of a server, by their NodeIds.
func addressSpace(name string, variables []Variable) (map[string]*node, error) {
	nodes := map[string]*node{}
	add := func(n *node) *node {
		nodes[n.id.String()] = n
		return n
	}
	for id, value := range map[uint32]any{
		namespaceArray: []string{"http://opcfoundation.org/UA/", Namespace},
		serverState:    int32(ua.ServerStateRunning), productName: name, manufacturerName: "fieldplane", softwareVersion: "1.0",
		maxNodesPerRead: uint32(operationLimit), maxNodesPerBrowse: uint32(operationLimit),
	} {
		n, err := variable(ua.NewNumericNodeID(0, id), "", 0, value)
		if err != nil {
			return nil, err
		}
		add(n)
	}
	objects := add(&node{id: ua.NewNumericNodeID(0, objectsFolder), name: "Objects", class: ua.NodeClassObject})

	// parent is the node that a path lies below; folders are made as they are needed.
	var parent func(path string) (*node, string)
	parent = func(path string) (*node, string) {
		at := strings.LastIndexByte(path, '/')
		if at < 0 {
			return objects, path
		}
		id := ua.NewStringNodeID(1, path[:at])
		if n := nodes[id.String()]; n != nil {
			return n, path[at+1:]
		}
		above, name := parent(path[:at])
		folder := add(&node{id: id, name: name, class: ua.NodeClassObject})
		above.children = append(above.children, reference{organizes, folder})
		return folder, path[at+1:]
	}
	for _, v := range variables {
		above, name := parent(v.Path)
		if name == "" {
			return nil, errors.New("a variable has no path")
		}
		n, err := variable(ua.NewStringNodeID(1, v.Path), name, 0, v.Value)
		if err != nil {
			return nil, err
		}
		if nodes[n.id.String()] != nil {
			return nil, fmt.Errorf("two nodes at %s; variables come before what is below them", v.Path)
		}
		if v.Writable {
			n.access |= ua.AccessLevelTypeCurrentWrite
		}
		above.children = append(above.children, reference{hasComponent, add(n)})
		property := func(name string, dataType, encoding uint32, value any) error {
			p, err := variable(ua.NewStringNodeID(1, v.Path+"."+name), name, dataType, &ua.ExtensionObject{
				EncodingMask: ua.ExtensionObjectBinary, TypeID: ua.NewNumericExpandedNodeID(0, encoding), Value: value,
			})
			if err != nil {
				return err
			}
			n.children = append(n.children, reference{hasProperty, add(p)})
			return nil
		}
		if v.Unit != "" {
			if err := property("EngineeringUnits", typeEUInformation, encodingEUInformaton, &ua.EUInformation{
				NamespaceURI: "http://www.opcfoundation.org/UA/units/un/cefact", UnitID: -1,
				DisplayName: ua.NewLocalizedText(v.Unit), Description: ua.NewLocalizedText(v.Unit),
			}); err != nil {
				return nil, err
			}
		}
		if v.Low != v.High {
			if err := property("EURange", typeRange, encodingRange, &ua.Range{Low: v.Low, High: v.High}); err != nil {
				return nil, err
			}
		}
	}
	return nodes, nil
}

// attribute is the value of one attribute of a node.
func (n *node) attribute(id ua.AttributeID) *ua.DataValue {
	good := func(value any) *ua.DataValue {
		return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(value)}
	}
	switch {
	case id == ua.AttributeIDNodeID:
		return good(n.id)
	case id == ua.AttributeIDNodeClass:
		return good(int32(n.class))
	case id == ua.AttributeIDBrowseName:
		return good(n.browseName())
	case id == ua.AttributeIDDisplayName:
		return good(ua.NewLocalizedText(n.name))
	case n.class != ua.NodeClassVariable:
	case id == ua.AttributeIDValue:
		return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: n.value}
	case id == ua.AttributeIDDataType:
		return good(n.dataType)
	case id == ua.AttributeIDValueRank:
		if n.value.ArrayLength() > 0 {
			return good(int32(1))
		}
		return good(int32(-1))
	case id == ua.AttributeIDAccessLevel, id == ua.AttributeIDUserAccessLevel:
		return good(byte(n.access))
	}
	return bad(ua.StatusBadAttributeIDInvalid)
}

func (n *node) browseName() *ua.QualifiedName {
	return &ua.QualifiedName{NamespaceIndex: n.id.Namespace(), Name: n.name}
}

func bad(status ua.StatusCode) *ua.DataValue {
	return &ua.DataValue{EncodingMask: ua.DataValueStatusCode, Status: status}
}

// browse is what a node refers to. Of the reference types, those are told apart that a client may ask for here.
func (n *node) browse(d *ua.BrowseDescription) *ua.BrowseResult {
	result := &ua.BrowseResult{}
	if d.BrowseDirection == ua.BrowseDirectionInverse {
		return result
	}
	for _, r := range n.children {
		if d.NodeClassMask != 0 && d.NodeClassMask&uint32(r.to.class) == 0 {
			continue
		}
		result.References = append(result.References, &ua.ReferenceDescription{
			ReferenceTypeID: ua.NewNumericNodeID(0, r.kind), IsForward: true, NodeID: ua.NewExpandedNodeID(r.to.id, "", 0),
			BrowseName: r.to.browseName(), DisplayName: ua.NewLocalizedText(r.to.name), NodeClass: r.to.class,
			TypeDefinition: ua.NewTwoByteExpandedNodeID(0),
		})
	}
	return result
}
