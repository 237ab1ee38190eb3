package app

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// tagBoard is what is known of a Unit's tags while they are watched.
type tagBoard struct {
	tags map[v1alpha1.TagReference]v1alpha1.TagValue
	// order are the keys of tags as they are shown; nil after one came or went.
	order []v1alpha1.TagReference
	// live tells that the stream stands, so that the values are those of now.
	live bool
	// known tells that values came at all.
	known bool
	// heard is when the stream last said something, at is when it was lost, or when it was first asked for.
	heard, at time.Time
	// why the stream was lost.
	why error
	// changes counts what happened to the board.
	changes int
	// before are the values that an event changed, by tag.
	before map[v1alpha1.TagReference]v1alpha1.TagValue
	// gone are the tags that the last event removed, sorted; of those that are shown.
	gone []v1alpha1.TagReference
}

func newTagBoard(now time.Time) *tagBoard {
	return &tagBoard{tags: map[v1alpha1.TagReference]v1alpha1.TagValue{}, at: now}
}

// put takes an event: Added has every tag, Modified those that changed. It tells after how long the stream is back, if it is.
func (b *tagBoard) put(now time.Time, event watch.EventType, tags *v1alpha1.UnitTags, shows func(controlModule, tag string) bool) (time.Duration, bool) {
	back := !b.live && b.why != nil
	after := now.Sub(b.at)
	b.live, b.heard, b.why = true, now, nil
	b.changes++
	b.before, b.gone = map[v1alpha1.TagReference]v1alpha1.TagValue{}, nil
	if event == watch.Bookmark {
		return after, back
	}
	b.known = true
	for _, key := range b.removed(event, tags) {
		if _, had := b.tags[key]; had {
			delete(b.tags, key)
			b.order, b.gone = nil, append(b.gone, key)
		}
	}
	slices.SortFunc(b.gone, compareTags)
	for _, tag := range tags.Items {
		key := v1alpha1.TagReference{ControlModule: tag.ControlModule, Name: tag.Name}
		if !shows(key.ControlModule, key.Name) {
			continue
		}
		old, had := b.tags[key]
		if had {
			b.before[key] = old
		} else {
			b.order = nil
		}
		b.tags[key] = tag
	}
	return after, back
}

// current tells whether the values are known to be those of now.
func (b *tagBoard) current(now time.Time) bool { return b.live && now.Sub(b.heard) <= streamQuiet }

// removed are the tags that an event says are no more.
func (b *tagBoard) removed(event watch.EventType, tags *v1alpha1.UnitTags) []v1alpha1.TagReference {
	if event != watch.Added {
		return tags.Removed
	}
	stay := make(map[v1alpha1.TagReference]bool, len(tags.Items))
	for _, tag := range tags.Items {
		stay[v1alpha1.TagReference{ControlModule: tag.ControlModule, Name: tag.Name}] = true
	}
	var gone []v1alpha1.TagReference
	for key := range b.tags {
		if !stay[key] {
			gone = append(gone, key)
		}
	}
	return gone
}

// lose notes that the stream is lost; false if that was known.
func (b *tagBoard) lose(now time.Time, why error) bool {
	first := b.live || b.why == nil
	if first {
		b.at = now
	}
	// The later reason is the truer one: that a stream ended says less than why it cannot be opened.
	b.live, b.why = false, why
	b.changes++
	return first
}

// sorted are the keys in the order in which they are shown, which never depends on the values: a row stays where it is.
func (b *tagBoard) sorted() []v1alpha1.TagReference {
	if b.order == nil {
		b.order = make([]v1alpha1.TagReference, 0, len(b.tags))
		for key := range b.tags {
			b.order = append(b.order, key)
		}
		slices.SortFunc(b.order, compareTags)
	}
	return b.order
}

func compareTags(x, y v1alpha1.TagReference) int {
	return cmp.Or(cmp.Compare(x.ControlModule, y.ControlModule), cmp.Compare(x.Name, y.Name))
}

// take returns the values of tags.
func (b *tagBoard) take(keys []v1alpha1.TagReference) []v1alpha1.TagValue {
	values := make([]v1alpha1.TagValue, len(keys))
	for i, key := range keys {
		values[i] = b.tags[key]
	}
	return values
}

// count counts tags by quality.
func (b *tagBoard) count(keys []v1alpha1.TagReference) (good, uncertain, bad int) {
	for _, key := range keys {
		switch b.tags[key].Quality {
		case v1alpha1.QualityGood:
			good++
		case v1alpha1.QualityUncertain:
			uncertain++
		default:
			bad++
		}
	}
	return good, uncertain, bad
}
