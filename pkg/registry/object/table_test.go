package object_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// Req: A-08
func TestATableTellsTheSameOfAnObjectAndOfAList(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		objects := newArbitrary(scheme, 9)
		for range tries {
			obj := objects.object(k)
			list := k.main.NewList()
			if err := meta.SetList(list, []runtime.Object{obj, k.main.New()}); err != nil {
				t.Fatal(err)
			}
			accessor, err := meta.ListAccessor(list)
			if err != nil {
				t.Fatal(err)
			}
			accessor.SetResourceVersion("17")
			accessor.SetContinue("more")
			accessor.SetRemainingItemCount(ptr.To[int64](3))

			many := table(t, k, list, &metav1.TableOptions{})
			if many.ResourceVersion != "17" || many.Continue != "more" || ptr.Deref(many.RemainingItemCount, 0) != 3 {
				t.Fatalf("the list's metadata is lost: %+v", many.ListMeta)
			}
			one := table(t, k, obj, nil)
			if one.ResourceVersion != obj.GetResourceVersion() || one.Continue != "" || one.RemainingItemCount != nil {
				t.Fatalf("metadata of a single object: %+v", one.ListMeta)
			}
			if len(many.Rows) != 2 || len(one.Rows) != 1 || !reflect.DeepEqual(many.Rows[0].Cells, one.Rows[0].Cells) {
				t.Fatalf("rows of the list %v, of the object %v", many.Rows, one.Rows)
			}
			if one.Rows[0].Object.Object != runtime.Object(obj) {
				t.Fatal("the row does not carry its object")
			}
			for _, row := range many.Rows {
				cellsFit(t, many.ColumnDefinitions, row.Cells)
			}
		}
	})
}

func cellsFit(t *testing.T, columns []metav1.TableColumnDefinition, cells []any) {
	t.Helper()
	if len(cells) != len(columns) {
		t.Fatalf("%d cells under %d columns", len(cells), len(columns))
	}
	for i, cell := range cells {
		switch cell := cell.(type) {
		case string:
			// kubectl shows an empty cell as nothing at all, which shifts what stands beside it.
			if columns[i].Type != "string" || cell == "" && i > 0 {
				t.Fatalf("%s, a column of type %s, has the text %q", columns[i].Name, columns[i].Type, cell)
			}
		case int64:
			if columns[i].Type != "integer" {
				t.Fatalf("%s, a column of type %s, has a number", columns[i].Name, columns[i].Type)
			}
		default:
			t.Fatalf("%s has a %T", columns[i].Name, cell)
		}
	}
	if _, err := json.Marshal(cells); err != nil {
		t.Fatal(err)
	}
}

// Req: A-08
func TestATablesColumns(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		columns := table(t, k, k.main.New(), nil).ColumnDefinitions
		first, last := columns[0], columns[len(columns)-1]
		if first.Name != "Name" || first.Format != "name" || last.Name != "Age" {
			t.Errorf("first %+v, last %+v", first, last)
		}
		named, wide := map[string]bool{}, 0
		for _, column := range columns {
			if column.Name == "" || column.Description == "" || named[column.Name] {
				t.Errorf("a column has no name of its own or no description: %+v", column)
			}
			named[column.Name] = true
			if column.Priority != 0 {
				wide++
			}
		}
		if wide == 0 && k.gvk.Kind != "ControlModule" {
			t.Error("-o wide shows nothing more")
		}
	})
}

func TestATableWithoutHeadersStillHasItsRows(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		bare := table(t, k, k.main.New(), &metav1.TableOptions{NoHeaders: true})
		if len(bare.ColumnDefinitions) != 0 || len(bare.Rows) != 1 {
			t.Errorf("%d columns, %d rows", len(bare.ColumnDefinitions), len(bare.Rows))
		}
		empty := table(t, k, k.main.NewList(), nil)
		if len(empty.ColumnDefinitions) == 0 || len(empty.Rows) != 0 {
			t.Errorf("an empty list: %d columns, %d rows", len(empty.ColumnDefinitions), len(empty.Rows))
		}
	})
}

func TestAnAgeIsToldAsKubectlDoes(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		for _, tc := range []struct {
			created metav1.Time
			want    string
		}{
			{metav1.Time{}, "<unknown>"},
			{metav1.NewTime(now.Add(-5 * time.Minute)), "5m"},
			{metav1.NewTime(now.Add(-49 * time.Hour)), "2d1h"},
		} {
			obj := named(k.main.New().(interface {
				runtime.Object
				metav1.Object
			}))
			obj.SetCreationTimestamp(tc.created)
			cells := table(t, k, obj, nil).Rows[0].Cells
			if got := cells[len(cells)-1]; got != tc.want {
				t.Errorf("created at %v: %v, want %s", tc.created, got, tc.want)
			}
			if cells[0] != "n" {
				t.Errorf("the first cell is %v, want the name", cells[0])
			}
		}
	})
}

func TestWhatHasNoTableIsNotAcceptable(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		_, err := k.main.ConvertToTable(context.Background(), &metav1.Status{}, nil)
		var status interface{ Status() metav1.Status }
		if !errors.As(err, &status) || status.Status().Code != 406 {
			t.Errorf("error %v, want 406", err)
		}
	})
}

// table prints with the main resource, after seeing that its subresources print the same.
func table(t *testing.T, k kind, obj, options runtime.Object) *metav1.Table {
	t.Helper()
	printed, err := k.main.ConvertToTable(context.Background(), obj, options)
	if err != nil {
		t.Fatal(err)
	}
	for name, subresource := range k.subresources {
		same, err := subresource.ConvertToTable(context.Background(), obj, options)
		if err != nil || !reflect.DeepEqual(printed, same) {
			t.Fatalf("/%s prints differently: %v", name, err)
		}
	}
	return printed
}
