package unit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Runtimes reach the runtimes of Units. Errors are of the API, and fit to be shown to whoever may read the tags.
type Runtimes interface {
	// Tags returns every tag of a Unit with its value.
	Tags(ctx context.Context, unit *physical.Unit) ([]api.TagValue, error)
	// FollowTags calls handle with every tag, then with what changes, and with heartbeats, until the runtime falls silent or ctx
	// ends; its error is never nil. handle does not block.
	FollowTags(ctx context.Context, unit *physical.Unit, handle func(api.TagEvent)) error
	// Reach returns nil if a write could be sent now.
	Reach(ctx context.Context, unit *physical.Unit) error
	// WriteTags sends values, and tells what became of each, in order.
	WriteTags(ctx context.Context, unit *physical.Unit, writes []api.TagWrite) []api.WriteResult
}

// Tags serves units/tags: a GET shows the values of a Unit's tags, read from its runtime; the watch path follows them; a PUT
// writes values (P-15). Its verbs are get, watch and update.
//
// It is no rest.Getter, as a Getter that updates is patched, too: a patch of values that are read again for it could write
// something that nobody asked for.
type Tags struct {
	units    rest.Getter
	modules  rest.Getter
	status   statusChanger
	runtimes Runtimes
	clock    clock.WithTicker
}

var (
	_ rest.Storage           = &Tags{}
	_ rest.GetterWithOptions = &Tags{}
	_ rest.Watcher           = &Tags{}
	_ rest.Updater           = &Tags{}
	_ rest.TableConvertor    = &Tags{}
)

// New returns no tags.
func (*Tags) New() runtime.Object { return &physical.UnitTags{} }

// Destroy does nothing: the store belongs to the main resource.
func (*Tags) Destroy() {}

// NewGetOptions returns the query: what it asks for beyond a GET is refused rather than ignored.
func (*Tags) NewGetOptions() (runtime.Object, bool, string) { return &metav1.ListOptions{}, false, "" }

// Get reads all values.
func (t *Tags) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	query, ok := options.(*metav1.ListOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not ListOptions: %T", options))
	}
	switch {
	case query.Watch:
		return nil, apierrors.NewBadRequest("watch is not served here, where it would end after a minute: follow /apis/GROUP/VERSION/watch/namespaces/NAMESPACE/units/NAME/tags, as kubectl fieldplane tags -w does")
	case query.LabelSelector != "" || query.FieldSelector != "" || query.Limit != 0 || query.Continue != "":
		return nil, apierrors.NewBadRequest("tags are neither selected nor shown in pages: all of the Unit's are shown")
	}
	unit, err := t.unit(ctx, name)
	if err != nil {
		return nil, err
	}
	values, err := t.runtimes.Tags(ctx, unit)
	if err != nil {
		return nil, err
	}
	return tagsOf(unit, values, nil), nil
}

func (t *Tags) unit(ctx context.Context, name string) (*physical.Unit, error) {
	obj, err := t.units.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*physical.Unit), nil
}

// Watch follows the values. It is called for the watch path alone, which names one Unit.
func (t *Tags) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	name, ok := "", false
	bookmarks := false
	if options != nil {
		if options.LabelSelector != nil && !options.LabelSelector.Empty() {
			return nil, apierrors.NewBadRequest("tags are not selected: all of the Unit's are shown")
		}
		if options.FieldSelector != nil {
			name, ok = options.FieldSelector.RequiresExactMatch("metadata.name")
		}
		bookmarks = options.AllowWatchBookmarks
	}
	if !ok || name == "" {
		return nil, apierrors.NewBadRequest("the tags of one Unit are followed, by its name")
	}
	unit, err := t.unit(ctx, name)
	if err != nil {
		return nil, err
	}
	return follow(ctx, t.runtimes, unit, bookmarks, t.clock)
}

// tagsOf is what a runtime says of tags. The pod is in the hands of whoever may edit the namespace: its texts are bounded.
func tagsOf(unit *physical.Unit, values []api.TagValue, removed []api.TagKey) *physical.UnitTags {
	tags := &physical.UnitTags{ObjectMeta: metaOf(unit), Items: make([]physical.TagValue, 0, len(values))}
	for i := range values {
		tags.Items = append(tags.Items, tagOf(&values[i]))
	}
	slices.SortFunc(tags.Items, func(a, b physical.TagValue) int {
		return cmp.Or(strings.Compare(a.ControlModule, b.ControlModule), strings.Compare(a.Name, b.Name))
	})
	for _, key := range removed {
		tags.Removed = append(tags.Removed, physical.TagReference{ControlModule: key.ControlModule, Name: key.Name})
	}
	slices.SortFunc(tags.Removed, func(a, b physical.TagReference) int {
		return cmp.Or(strings.Compare(a.ControlModule, b.ControlModule), strings.Compare(a.Name, b.Name))
	})
	return tags
}

// metaOf says which Unit it is, and not which version of it: values have none.
func metaOf(unit *physical.Unit) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: unit.Namespace, Name: unit.Name, UID: unit.UID}
}

func tagOf(value *api.TagValue) physical.TagValue {
	const maxMessage = 1024
	tag := physical.TagValue{
		ControlModule: value.ControlModule, Name: value.Name,
		Value: value.Value, Quality: qualityOf(value), Status: value.Status.String(), StatusCode: int64(value.Status),
		Unit: value.Unit, IOModule: value.IOModule, Address: value.Address, Access: physical.Access(value.Access),
		Message: strings.ToValidUTF8(value.Message[:min(len(value.Message), maxMessage)], ""),
	}
	if !value.SourceTime.IsZero() {
		tag.SourceTime = &metav1.MicroTime{Time: value.SourceTime}
	}
	return tag
}

func qualityOf(value *api.TagValue) physical.TagQuality {
	switch {
	case value.Status.Good():
		return physical.QualityGood
	case value.Status.Uncertain():
		return physical.QualityUncertain
	default:
		return physical.QualityBad
	}
}

// ConvertToTable prints values for people.
func (*Tags) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	tags, ok := obj.(*physical.UnitTags)
	if !ok {
		return nil, fmt.Errorf("not UnitTags: %T", obj)
	}
	table := &metav1.Table{
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Module", Type: "string", Description: "ControlModule that has the tag."},
			{Name: "Tag", Type: "string", Description: "Name of the tag."},
			{Name: "Value", Type: "string", Description: "Last value in engineering units."},
			{Name: "Unit", Type: "string", Description: "Engineering unit."},
			{Name: "Quality", Type: "string", Description: "How far the value may be trusted: Good, Uncertain or Bad."},
			{Name: "Time", Type: "string", Format: "date-time", Description: "When the value was true."},
			{Name: "Status", Type: "string", Priority: 1, Description: "OPC UA's name of the status."},
			{Name: "IOModule", Type: "string", Priority: 1, Description: "IOModule that the tag is read from."},
			{Name: "Address", Type: "string", Priority: 1, Description: "Address in the module's protocol."},
			{Name: "Access", Type: "string", Priority: 1, Description: "Whether it is read, written or both."},
			{Name: "Message", Type: "string", Priority: 1, Description: "Why the quality is not Good."},
		},
	}
	unit := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: tags.Namespace, Name: tags.Name}}
	for i := range tags.Items {
		tag := &tags.Items[i]
		var value, at string
		if tag.Value != nil {
			value = *tag.Value
		}
		if tag.SourceTime != nil {
			at = tag.SourceTime.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells: []any{tag.ControlModule, tag.Name, value, tag.Unit, string(tag.Quality), at, tag.Status, tag.IOModule, tag.Address, string(tag.Access), tag.Message},
			// kubectl prints no row that is of no object.
			Object: runtime.RawExtension{Object: unit},
		})
	}
	return table, nil
}
