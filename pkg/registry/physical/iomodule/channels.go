package iomodule

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// The bounds of a page of channels.
const (
	defaultPage = 500
	maxPage     = 1000
)

// Catalogue tells the channels of a module's device, as its probe found them.
type Catalogue interface {
	// Page returns at most limit channels, after those of the page whose continue the token is. Its errors are of the API.
	Page(ctx context.Context, module *physical.IOModule, limit int, token string) (*physical.IOModuleChannels, error)
}

// Channels serves iomodules/channels: a GET lists what channels the module's device has, read from its probe, in pages
// (P-06). Its RBAC verb is get.
type Channels struct {
	modules   rest.Getter
	catalogue Catalogue
}

var (
	_ rest.Storage           = &Channels{}
	_ rest.GetterWithOptions = &Channels{}
	_ rest.TableConvertor    = &Channels{}
)

// New returns an empty page.
func (*Channels) New() runtime.Object { return &physical.IOModuleChannels{} }

// Destroy does nothing: the store belongs to the main resource.
func (*Channels) Destroy() {}

// NewGetOptions returns the query.
func (*Channels) NewGetOptions() (runtime.Object, bool, string) {
	return &physical.ChannelListOptions{}, false, ""
}

// Get reads one page.
func (c *Channels) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	query, ok := options.(*physical.ChannelListOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not ChannelListOptions: %T", options))
	}
	limit := query.Limit
	switch {
	case limit < 0 || limit > maxPage:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("limit=%d: must be from 1 to %d; continue leads to the next page", limit, maxPage))
	case limit == 0:
		limit = defaultPage
	}
	module, err := c.modules.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return c.catalogue.Page(ctx, module.(*physical.IOModule), int(limit), query.Continue)
}

// ConvertToTable prints a page for people.
func (*Channels) ConvertToTable(_ context.Context, obj, _ runtime.Object) (*metav1.Table, error) {
	page, ok := obj.(*physical.IOModuleChannels)
	if !ok {
		return nil, fmt.Errorf("not IOModuleChannels: %T", obj)
	}
	table := &metav1.Table{
		ListMeta: page.ListMeta,
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "What people call the channel."},
			{Name: "Address", Type: "string", Description: "Its address in the protocol's own notation."},
			{Name: "Type", Type: "string", Description: "Type of one element."},
			{Name: "Access", Type: "string", Description: "Whether it is read, written or both."},
			{Name: "Unit", Type: "string", Description: "Engineering unit."},
			{Name: "Problem", Type: "string", Description: "Why the device refuses it."},
		},
	}
	for _, channel := range page.Items {
		kind := string(channel.DataType)
		if kind == "" {
			kind = channel.DeviceType
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells: []any{channel.Name, channel.Address, kind, string(channel.Access), channel.Unit, channel.Problem},
			// kubectl prints no row that is of no object.
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: channel.Name}}},
		})
	}
	return table, nil
}
