package object

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
)

// Column is one column of a kind's table.
type Column[T any] struct {
	// Name is the heading.
	Name string
	// Description is what `kubectl explain` would say of it.
	Description string
	// Wide columns are shown by -o wide only.
	Wide bool
	// Type is an OpenAPI type: string by default, or integer.
	Type string
	// Cell returns the value; "" and nil print as <none>.
	Cell func(T) any
}

// Table prints objects of one internal type, name first and age last.
type Table[T metav1.Object] struct {
	// Columns stand between name and age.
	Columns []Column[T]
	// Clock tells ages.
	Clock clock.PassiveClock
}

// ConvertToTable turns an object or a list into a table.
func (t Table[T]) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if wanted, ok := options.(*metav1.TableOptions); !ok || !wanted.NoHeaders {
		table.ColumnDefinitions = t.definitions()
	}
	row := func(item runtime.Object) error {
		typed, ok := item.(T)
		if !ok {
			return &notPrintableError{fmt.Sprintf("%T", item)}
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  t.cells(typed),
			Object: runtime.RawExtension{Object: item},
		})
		return nil
	}
	if meta.IsListType(obj) {
		return table, meta.EachListItem(obj, row)
	}
	return table, row(obj)
}

func (t Table[T]) definitions() []metav1.TableColumnDefinition {
	descriptions := metav1.ObjectMeta{}.SwaggerDoc()
	definitions := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: descriptions["name"]},
	}
	for _, column := range t.Columns {
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string", Description: column.Description}
		if column.Type != "" {
			definition.Type = column.Type
		}
		if column.Wide {
			definition.Priority = 1
		}
		definitions = append(definitions, definition)
	}
	return append(definitions, metav1.TableColumnDefinition{
		Name: "Age", Type: "string", Description: descriptions["creationTimestamp"],
	})
}

func (t Table[T]) cells(obj T) []any {
	cells := []any{obj.GetName()}
	for _, column := range t.Columns {
		cell := column.Cell(obj)
		if cell == nil || cell == "" {
			cell = "<none>"
		}
		cells = append(cells, cell)
	}
	return append(cells, t.Since(obj.GetCreationTimestamp()))
}

// Since tells a time as kubectl does: "5m", or <unknown> when it is not set.
func (t Table[T]) Since(then metav1.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(t.Clock.Since(then.Time))
}

type notPrintableError struct{ kind string }

func (e *notPrintableError) Error() string {
	return fmt.Sprintf("objects of type %s have no table", e.kind)
}

// Status answers 406, as the table was asked for by the client.
func (e *notPrintableError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: 406, Reason: metav1.StatusReasonNotAcceptable, Message: e.Error()}
}
