package networkprobe

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func names(from, to int) []string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("m-%05d", i))
	}
	return list
}

func itemsOf(size int, lists ...[]string) []item {
	var items []item
	for _, name := range slices.Sorted(slices.Values(slices.Concat(lists...))) {
		items = append(items, item{name, size})
	}
	return items
}

func sizes(assigned map[string]int) map[int]int {
	count := map[int]int{}
	for _, n := range assigned {
		count[n]++
	}
	return count
}

// Req: P-09
func TestModulesAreSpreadOverShards(t *testing.T) {
	for _, tc := range []struct {
		name   string
		items  []item
		listed map[int][]string
		want   map[int]int
	}{
		{name: "nothing needs no shard", want: map[int]int{}},
		{name: "as many as one probe carries stay together", items: itemsOf(100, names(0, MaxModules)), want: map[int]int{1: MaxModules}},
		{name: "one more opens a second shard", items: itemsOf(100, names(0, MaxModules+1)), want: map[int]int{1: MaxModules, 2: 1}},
		{name: "large specifications fill a shard by bytes", items: itemsOf(100<<10, names(0, 9)), want: map[int]int{1: 8, 2: 1}},
		{name: "a newcomer takes the first gap", items: itemsOf(100, names(0, 1999)),
			listed: map[int][]string{1: names(0, 998), 2: names(1000, 1999)}, want: map[int]int{1: 1000, 2: 999}},
		{name: "when the first shard is emptied the next one takes its place", items: itemsOf(100, names(1000, 1005)),
			listed: map[int][]string{1: names(0, 1000), 2: names(1000, 1005)}, want: map[int]int{1: 5}},
		{name: "an emptied shard in the middle leaves a gap", items: itemsOf(100, names(0, 1), names(2000, 2001)),
			listed: map[int][]string{1: names(0, 1), 2: names(1, 2), 3: names(2000, 2001)}, want: map[int]int{1: 1, 3: 1}},
		{name: "a module that two shards list belongs to the first", items: itemsOf(100, names(0, 1)),
			listed: map[int][]string{1: names(0, 1), 2: names(0, 1)}, want: map[int]int{1: 1}},
		{name: "what outgrows its shard moves on", items: itemsOf(300<<10, names(0, 3)),
			listed: map[int][]string{1: names(0, 3)}, want: map[int]int{1: 2, 2: 1}},
		{name: "what nobody lists any more is forgotten", items: itemsOf(100, names(0, 1)),
			listed: map[int][]string{1: names(0, 5), 2: names(5, 9)}, want: map[int]int{1: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := sizes(assign(tc.items, tc.listed)); !maps.Equal(got, tc.want) {
				t.Errorf("modules per shard %v, want %v", got, tc.want)
			}
		})
	}
}

// Req: P-09
func TestAModuleKeepsItsShardWhenOthersCome(t *testing.T) {
	first := names(10, 10+MaxModules)
	second := names(5000, 5010)
	// These sort before all others, and would push them out of their shards if order decided.
	newcomers := names(0, 10)
	before := map[int][]string{1: first, 2: second}
	after := assign(itemsOf(100, first, second, newcomers), before)
	for n, list := range before {
		for _, name := range list {
			if after[name] != n {
				t.Fatalf("%s moved from shard %d to %d", name, n, after[name])
			}
		}
	}
	for _, name := range newcomers {
		if after[name] != 2 {
			t.Errorf("%s is in shard %d, want 2, which has room", name, after[name])
		}
	}
	if again := assign(itemsOf(100, first, second, newcomers), map[int][]string{1: first, 2: slices.Concat(second, newcomers)}); !maps.Equal(again, after) {
		t.Error("the second look differs from the first")
	}
}

// Req: P-09
func TestTenThousandNewModulesFillTenShards(t *testing.T) {
	got := sizes(assign(itemsOf(200, names(0, 10*MaxModules)), nil))
	if len(got) != 10 {
		t.Errorf("%d shards, want 10", len(got))
	}
	for n, count := range got {
		if count != MaxModules {
			t.Errorf("shard %d has %d modules", n, count)
		}
	}
}
