package networkprobe

// What one probe carries. A ConfigMap holds at most 1 MiB, and a thousand devices at 1 Hz cost a probe a tenth of a core.
const (
	// MaxModules is how many modules one probe watches; the next one opens another shard (P-09).
	MaxModules = 1000
	// MaxConfigBytes is how large a probe's config file gets. What is left to 1 MiB is for metadata.
	MaxConfigBytes = 900 << 10
)

// item is a module as sharding sees it.
type item struct {
	name string
	// size of the module's entry in bytes, with what stands around it.
	size int
}

// assign spreads the items of one group, sorted by name, over numbered shards. listed is what the shards list today.
//
// A module stays in its shard whatever comes or goes (P-09), with two exceptions: a shard whose modules have outgrown it
// gives the last ones away, and when the first shard has lost all of its own, the next one takes its place, so that the
// plain name exists while there is anything to watch (P-08).
func assign(items []item, listed map[int][]string) map[string]int {
	owner := map[string]int{}
	for n, names := range listed {
		for _, name := range names {
			if o, ok := owner[name]; !ok || n < o {
				owner[name] = n
			}
		}
	}
	promoted := promotedShard(items, owner)

	fill := map[int]*shardFill{}
	at := func(n int) *shardFill {
		if fill[n] == nil {
			fill[n] = &shardFill{size: len(configBegin) + len(configEnd)}
		}
		return fill[n]
	}
	assigned := make(map[string]int, len(items))
	var homeless []item
	for _, i := range items {
		n, ok := owner[i.name]
		if n == promoted {
			n = 1
		}
		if !ok || !at(n).take(i) {
			homeless = append(homeless, i)
			continue
		}
		assigned[i.name] = n
	}
	// first is the lowest shard that may still have room. Without it, a thousand newcomers would each look
	// through every full shard.
	first := 1
	for _, i := range homeless {
		n := first
		for !at(n).take(i) {
			if at(n).count >= MaxModules && n == first {
				first++
			}
			n++
		}
		assigned[i.name] = n
	}
	return assigned
}

// promotedShard is the lowest shard that has modules left, if the first has none; its modules become the first's.
func promotedShard(items []item, owner map[string]int) int {
	lowest := 0
	for _, i := range items {
		if n, ok := owner[i.name]; ok && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return lowest
}

type shardFill struct{ count, size int }

// take makes room for an item, if there is any. An item that fits no empty shard must not come here.
func (f *shardFill) take(i item) bool {
	if f.count >= MaxModules || f.size+i.size > MaxConfigBytes {
		return false
	}
	f.count++
	f.size += i.size
	return true
}
