package groupcommit

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const wait = 250 * time.Millisecond

// book collects what was committed. Gate, when set, blocks each commit until something is sent.
type book struct {
	mu     sync.Mutex
	groups [][]int
	late   []int
	gate   chan error
}

func (b *book) commit(group []*int) error {
	var err error
	if b.gate != nil {
		err = <-b.gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		var g []int
		for _, i := range group {
			g = append(g, *i)
		}
		b.groups = append(b.groups, g)
	}
	return err
}

func (b *book) all() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(slices.Concat(b.groups...)))
}

func do(q *Queue[int], n int) error {
	t := q.Ticket()
	t.Item = n
	return q.Do(t)
}

// run gives a test a queue in a bubble of its own time: waiting costs nothing and is exact.
func run(t *testing.T, b *book, test func(t *testing.T, q *Queue[int])) {
	synctest.Test(t, func(t *testing.T) {
		if b.gate != nil {
			b.gate = make(chan error)
		}
		q := New(wait, b.commit, func(i *int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.late = append(b.late, *i)
		})
		test(t, q)
		q.Close()
	})
}

var gated = make(chan error)

func TestEveryItemIsCommittedOnce(t *testing.T) {
	b := &book{}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		var all sync.WaitGroup
		for n := range 2000 {
			all.Go(func() {
				if err := do(q, n); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i, n := range b.all() {
			if i != n {
				t.Fatalf("item %d stands where %d should", n, i)
			}
		}
		if n := len(b.all()); n != 2000 {
			t.Errorf("%d items; want 2000", n)
		}
		for _, g := range b.groups {
			if len(g) > maxGroup {
				t.Errorf("a group of %d", len(g))
			}
		}
	})
}

func TestWhatComesTogetherIsOneGroup(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		for n := range 5 {
			go do(q, n)
			synctest.Wait()
		}
		b.gate <- nil
		b.gate <- nil
		synctest.Wait()
		if got := fmt.Sprint(b.groups); got != "[[0] [1 2 3 4]]" {
			t.Errorf("groups %s", got)
		}
	})
}

func TestGroupSharesItsError(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		answers := make(chan error, 3)
		for n := range 3 {
			go func() { answers <- do(q, n) }()
			synctest.Wait()
		}
		full := errors.New("full")
		b.gate <- nil
		b.gate <- full
		got := map[error]int{}
		for range 3 {
			got[<-answers]++
		}
		if got[nil] != 1 || got[full] != 2 {
			t.Errorf("answers %v; want one nil, two full", got)
		}
		go func() { b.gate <- nil }()
		if err := do(q, 9); err != nil {
			t.Errorf("after a failure: %v", err)
		}
	})
}

func TestHangingCommit(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		begun := time.Now()
		answers := make(chan error, 2)
		go func() { answers <- do(q, 1) }() // is being committed
		synctest.Wait()
		go func() { answers <- do(q, 2) }() // waits for that
		for range 2 {
			if err := <-answers; err != ErrTimeout {
				t.Errorf("%v; want ErrTimeout", err)
			}
		}
		if took := time.Since(begun); took != wait {
			t.Errorf("the callers waited %v; want %v", took, wait)
		}
		time.Sleep(time.Nanosecond)
		begun = time.Now()
		if err := do(q, 3); err != ErrStalled || time.Since(begun) != 0 {
			t.Errorf("the next caller: %v after %v; want ErrStalled at once", err, time.Since(begun))
		}
		b.gate <- nil
		synctest.Wait()
		go func() { b.gate <- nil }()
		if err := do(q, 4); err != nil {
			t.Errorf("after the commit returned: %v", err)
		}
		if got := fmt.Sprint(b.groups); got != "[[1] [4]]" {
			t.Errorf("groups %s; want the hanging one and the last: nobody waits for the others", got)
		}
		if got := fmt.Sprint(b.late); got != "[1]" {
			t.Errorf("late %s; want [1]", got)
		}
	})
}

func TestHangingCommitThatFailsIsNotLate(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		if err := do(q, 1); err != ErrTimeout {
			t.Errorf("%v; want ErrTimeout", err)
		}
		b.gate <- errors.New("failed after all")
		synctest.Wait()
		if len(b.late) != 0 {
			t.Errorf("late %v; want none: it was not committed", b.late)
		}
	})
}

func TestFullQueueIsBounded(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		const callers = maxQueue + 10
		answers := make(chan error, callers)
		for n := range callers {
			go func() { answers <- do(q, n) }()
		}
		for range callers {
			if err := <-answers; err != ErrTimeout {
				t.Errorf("%v; want ErrTimeout", err)
			}
		}
		b.gate <- nil
		synctest.Wait()
		if n := len(b.all()); n < 1 || n > maxGroup || n != len(b.late) {
			t.Errorf("%d committed, %d late; want only the group that hung", n, len(b.late))
		}
	})
}

func TestClose(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		answers := make(chan error, 2)
		for n := range 2 {
			go func() { answers <- do(q, n) }()
			synctest.Wait()
		}
		go func() { b.gate <- nil; b.gate <- nil }()
		if err := q.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for range 2 {
			if err := <-answers; err != nil {
				t.Errorf("queued before Close: %v", err)
			}
		}
		if err := do(q, 3); err != ErrClosed {
			t.Errorf("after Close: %v; want ErrClosed", err)
		}
		if err := q.Close(); err != ErrClosed {
			t.Errorf("Close again: %v; want ErrClosed", err)
		}
	})
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		go do(q, 1)
		synctest.Wait()
		if err := q.Close(); err != ErrTimeout {
			t.Errorf("Close: %v; want ErrTimeout", err)
		}
		b.gate <- nil
	})
}

// Posted items make nobody wait, come before what is handed in later, and outlive a commit that fails.
func TestPostedItemsKeepTheirPlace(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		for n := range 3 {
			if err := post(q, n); err != nil {
				t.Error(err)
			}
		}
		done := make(chan error)
		go func() { done <- do(q, 3) }()
		synctest.Wait()
		b.gate <- errors.New("disk full") // only the caller of 3 is told
		if err := <-done; err == nil {
			t.Error("the caller was not told")
		}
		if err := post(q, 4); err != nil {
			t.Error(err)
		}
		go func() { done <- do(q, 5) }()
		synctest.Wait()
		close(b.gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.groups) != 1 || !slices.Equal(b.groups[0], []int{0, 1, 2, 4, 5}) {
			t.Errorf("committed %v", b.groups)
		}
	})
}

// Without company, posted items are committed when they have lingered, all at once.
func TestPostedItemsDoNotWaitForCompany(t *testing.T) {
	b := &book{}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		for n := range 3 {
			if err := post(q, n); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(linger - 1)
		synctest.Wait()
		if got := b.all(); len(got) != 0 {
			t.Errorf("too early: %v", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := b.all(); !slices.Equal(got, []int{0, 1, 2}) || len(b.groups) != 1 {
			t.Errorf("committed %v", b.groups)
		}
		// Many do not wait even so long.
		for n := range maxGroup {
			if err := post(q, 100+n); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := b.all(); len(got) != 3+maxGroup {
			t.Errorf("%d committed", len(got))
		}
	})
}

func post(q *Queue[int], n int) error {
	k := q.Ticket()
	k.Item = n
	return q.Post(k)
}

// A queue that hangs takes what there is room for, and then says so at once. What it took is committed at the end.
func TestPostIsBounded(t *testing.T) {
	b := &book{gate: gated}
	run(t, b, func(t *testing.T, q *Queue[int]) {
		taken := 0
		for ; ; taken++ {
			if err := post(q, taken); err != nil {
				if !errors.Is(err, ErrStalled) {
					t.Error(err)
				}
				break
			}
		}
		if taken < maxQueue || taken > 2*maxQueue {
			t.Errorf("%d were taken", taken)
		}
		close(b.gate)
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if got := b.all(); len(got) != taken {
			t.Errorf("%d committed of %d", len(got), taken)
		}
		if err := post(q, -1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
