package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"aduana/gateway"
)

// A client that begins sessions without end loses its own, and nobody else's.
func TestNobodyTakesEverySession(t *testing.T) {
	w := crmWorld(t, "")
	ana, eve := w.principal("corp", "ana"), w.principal("corp", "eve")
	begin := func() *gateway.ClientSession {
		t.Helper()
		r := w.ask(eve, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy)
		if r.begun == nil {
			t.Fatalf("no session: %s", r.answer)
		}
		return r.begun
	}
	hers := w.ask(ana, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy).begun
	w.advance(time.Second)
	first := begin()
	w.advance(time.Second)
	var last *gateway.ClientSession
	for range 10_000 {
		last = begin()
	}
	if _, ok := w.g.Session(hers.ID(), ana); !ok {
		t.Error("a client lost its session to another one")
	}
	select {
	case <-hers.Done():
		t.Error("a client's session was ended for another one")
	default:
	}
	if _, ok := w.g.Session(first.ID(), eve); ok {
		t.Error("the longest idle session stayed")
	}
	select {
	case <-first.Done():
	default:
		t.Error("the session that made room was not ended")
	}
	if _, ok := w.g.Session(last.ID(), eve); !ok {
		t.Error("the newest session is unknown")
	}
	if r := w.ask(ana, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy); r.begun == nil {
		t.Errorf("there is no room for another client: %s", r.answer)
	}
}

// What a wrong name may have meant is looked for within bounds; that shows by the last of many not being found.
func TestALongWrongNameIsNotLookedForWithoutEnd(t *testing.T) {
	house := func(n int) (*world, string) {
		var tools []string
		declared := "tools:\n"
		for i := range n {
			name := fmt.Sprintf("a_rather_long_name_%020d", i)
			declared += "      - { name: " + name + ", capability: read }\n"
			tools = append(tools, tool(name))
		}
		w := newWorld(t, strings.Replace(crmPolicy(""), "tools:\n", declared, 1), map[string][]string{"crm": tools})
		r := w.call(w.principal("corp", "bob", "team=ops"), fmt.Sprintf("crm__a_rather_long_name_%019dx", (n-1)/10), "")
		return w, string(r.answer)
	}
	if _, answer := house(100); !strings.Contains(answer, "00090") {
		t.Errorf("nothing was found among few: %s", answer)
	}
	w, answer := house(2000)
	if strings.Contains(answer, "01990") {
		t.Errorf("2000 long names were compared with another: %s", answer)
	}
	// A short wrong name is like none of them, and a suffix is found without comparing.
	if r := w.call(w.principal("corp", "bob", "team=ops"), "a_rather_long_name_00000000000000001999", ""); !strings.Contains(string(r.answer), "did you mean") {
		t.Errorf("the name without its upstream was not found: %s", r.answer)
	}
}

// An upstream that announces a change as soon as the last one was listed is listed for a tenth of the time at most.
func TestAStormOfChangesLeavesTime(t *testing.T) {
	w := crmWorld(t, "", func(w *world) {
		w.realClock = func() time.Time { // each look takes a while, so that a listing does
			w.advance(20 * time.Millisecond)
			return w.clock()
		}
	})
	w.call(w.principal("corp", "bob", "team=ops"), "crm__get", "")
	changed := w.up.Sessions()[0].Target.Changed
	before := w.up.Listed.Load()
	end := time.Now().Add(300 * time.Millisecond)
	for time.Now().Before(end) {
		changed()
		time.Sleep(time.Millisecond)
	}
	// A listing seems to take 20 ms or more, hence a rest of 180 ms; without rests there would be some hundred.
	if n := w.up.Listed.Load() - before; n < 1 || n > 3 {
		t.Errorf("listed %d times", n)
	}
	// The last announcement is not lost.
	for deadline := time.Now().Add(5 * time.Second); w.up.Listed.Load()-before < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was announced during a rest was never listed")
		}
	}
}
