package iomodule

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fieldplane/fieldplane/apis/physical"
)

type modules map[string]*physical.IOModule

func (m modules) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if module := m[name]; module != nil {
		return module, nil
	}
	return nil, apierrors.NewNotFound(physical.Resource("iomodules"), name)
}

// pages keeps what it was asked.
type pages struct {
	limit int
	token string
}

func (p *pages) Page(_ context.Context, module *physical.IOModule, limit int, token string) (*physical.IOModuleChannels, error) {
	p.limit, p.token = limit, token
	return &physical.IOModuleChannels{Items: []physical.ModuleChannel{
		{Name: module.Name, Address: "a", DeviceType: "UDT", Access: physical.AccessRead, Unit: "bar", Problem: "Timeout"},
	}}, nil
}

// Req: A-05, P-06
func TestAPageOfChannelsIsAskedForWithinItsBounds(t *testing.T) {
	for _, test := range []struct {
		name    string
		module  string
		options runtime.Object
		limit   int
		refused func(error) bool
	}{
		{name: "no limit", module: "m", options: &physical.ChannelListOptions{Continue: "t"}, limit: 500},
		{name: "the largest page", module: "m", options: &physical.ChannelListOptions{Limit: 1000, Continue: "t"}, limit: 1000},
		{name: "too large a page", module: "m", options: &physical.ChannelListOptions{Limit: 1001}, refused: apierrors.IsBadRequest},
		{name: "less than nothing", module: "m", options: &physical.ChannelListOptions{Limit: -1}, refused: apierrors.IsBadRequest},
		{name: "no such module", module: "n", options: &physical.ChannelListOptions{}, refused: apierrors.IsNotFound},
		{name: "other options", module: "m", options: &physical.IOModule{}, refused: apierrors.IsBadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := &pages{}
			channels := &Channels{modules: modules{"m": {ObjectMeta: metav1.ObjectMeta{Name: "m"}}}, catalogue: asked}
			obj, err := channels.Get(t.Context(), test.module, test.options)
			if test.refused != nil {
				if !test.refused(err) || asked.limit != 0 {
					t.Errorf("have %v, asked %+v", err, asked)
				}
				return
			}
			if err != nil || asked.limit != test.limit || asked.token != "t" {
				t.Fatalf("have %v, asked %+v", err, asked)
			}
			table, err := channels.ConvertToTable(t.Context(), obj, nil)
			if err != nil || len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) || table.Rows[0].Cells[2] != "UDT" {
				t.Errorf("have %+v (%v)", table, err)
			}
		})
	}
}
