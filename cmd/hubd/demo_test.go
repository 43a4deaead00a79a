package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/metrics"
	"hubd/internal/queue"
)

// rehearse plays a demo on a network in memory, in synthetic time, and returns
// what it came to and what was printed. What is on the network has no buffers,
// so the figures are those of the queues alone.
func rehearse(t *testing.T, length time.Duration, interrupt time.Duration, live bool) (report demoReport, printed string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if interrupt > 0 {
			time.AfterFunc(interrupt, cancel)
		}
		network := newPipeListener()
		var out bytes.Buffer
		d := &demo{
			length: length,
			screen: &screen{out: &out, live: live, columns: 80},
			listen: func(context.Context) (net.Listener, error) { return network, nil },
			dial:   func(speed) dialFunc { return network.dial },
		}
		start := time.Now()
		if err := d.run(ctx); err != nil {
			t.Error(err)
		}
		report, printed = d.final, out.String()
		want := length
		if interrupt > 0 {
			want = interrupt
		}
		if took := time.Since(start); took < want || took > want+time.Second {
			t.Errorf("it took %v, want %v", took, want)
		}
	})
	if t.Failed() {
		t.Logf("printed:\n%s", printed)
	}
	return report, printed
}

// TestDemo: who pays, and what, is as the policies say; the fast lose nothing.
func TestDemo(t *testing.T) {
	report, printed := rehearse(t, 12*time.Second, 0, false)
	if len(report.rooms) != queue.NumPolicies+1 {
		t.Fatalf("%d rooms", len(report.rooms))
	}
	control := report.rooms[queue.NumPolicies]
	attempts := int(control.published)
	if !control.control || attempts < 599 || attempts > 601 || len(control.clients) != 1 {
		t.Errorf("the room to compare with has %+v", control)
	}
	for _, room := range report.rooms {
		if got := int(room.published) + room.refused; got < attempts-1 || got > attempts+1 {
			t.Errorf("%s: %d messages, want %d as in each room", room.name, got, attempts)
		}
		fast := room.clients[0]
		if fast.pace != demoFast || fast.lost() != 0 || fast.gone != 0 || fast.Offered != room.published || fast.received != int(room.published) {
			t.Errorf("%s: of %d messages the fast one has %+v", room.name, room.published, fast)
		}
		if room.refused > 0 != (room.policy == queue.RejectPublish) {
			t.Errorf("%s: %d publishes refused", room.name, room.refused)
		}
		for _, c := range room.clients {
			checkFate(t, room, c)
		}
	}
	newest, oldest, latest := report.rooms[queue.DropNewest], report.rooms[queue.DropOldest], report.rooms[queue.KeepLatest]
	for i := range newest.clients {
		// Which one is on its way at the end is a matter of the moment.
		if a, b := newest.clients[i].lost(), oldest.clients[i].lost(); a < b-1 || a > b+1 {
			t.Errorf("%v: lost %d under drop-newest and %d under drop-oldest", newest.clients[i].pace, a, b)
		}
	}
	if a, b, c := newest.clients[1].mean, oldest.clients[1].mean, latest.clients[1].mean; a < 3*b || b <= c || c <= 0 {
		t.Errorf("the slow ones read what is %v, %v and %v old", a, b, c)
	}
	for _, want := range []string{
		"To watch it on a page: http://127.0.0.1:80/\n",
		"\n  3 s: a slow one and a stuck one join each room\n  8 s: fast, slow and stuck, 4 s to go; lost: fast 0, slow ",
		"\nroom            refused  subscriber  sent  lost  queued   oldest   ",
		"\ndrop-newest: a full queue takes nothing more. The laggards paid, with messages.\n  fast   got all ",
		"\ndisconnect: a subscriber whose queue is full is cut off. The laggards paid, with their connections.\n",
		" publish to the room is refused. Everybody paid: ",
		"\n  slow   was cut off ",
		" and went without the ",
		"\nWhat a slow and a stuck subscriber cost in 9 s, and whom:\n\ndrop-newest: a full",
		"\nThe last messages that the slow ones read were on average this old: ",
		"\nEvery message is accounted for: ",
		"\nbefore there were laggards           0 s     0 s\nbeside laggards                      0 s     0 s\nmeanwhile, in the room without any   0 s     0 s\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("no %q in:\n%s", want, printed)
		}
	}
	if strings.Contains(printed, "\x1b") {
		t.Error("there are escapes in what is no terminal")
	}
	for _, line := range strings.Split(printed, "\n") {
		if strings.HasPrefix(line, "  ") && len(line) > 140 {
			t.Errorf("a long line: %s", line)
		}
	}
}

// checkFate holds one laggard to what its policy does.
func checkFate(t *testing.T, room roomReport, c clientReport) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, %v: %s in %+v", room.name, c.pace, fmt.Sprintf(format, args...), c)
	}
	if got := c.Sent + uint64(c.lost()+c.Queued.Messages+c.InFlight); got != c.Offered {
		bad("%d of %d accounted for", got, c.Offered)
	}
	if c.pace == demoFast {
		return
	}
	dropped := func(reason queue.Reason) int { return int(c.Dropped[reason]) }
	full := c.Queued.Messages >= demoQueue-1 // it has just been read from
	seconds := c.Oldest.Seconds()
	switch room.policy {
	case queue.DropNewest:
		if c.lost() == 0 || dropped(queue.Overflow) != c.lost() || !full || c.gone > 0 || seconds < 4 {
			bad("want what is old, and new ones lost")
		}
	case queue.DropOldest:
		if c.lost() == 0 || dropped(queue.Overflow) != c.lost() || !full || c.gone > 0 || seconds > 1.2 {
			bad("want what is new, and old ones lost")
		}
	case queue.KeepLatest:
		if c.lost() == 0 || dropped(queue.Conflated) != c.lost() || c.lost()%demoQueue > 1 || c.gone > 0 || seconds > 1.2 {
			bad("want the queue cleared again and again")
		}
	case queue.Disconnect:
		if c.gone == 0 || dropped(queue.Overflow) != 1 || dropped(queue.Closed) < demoQueue || c.Queued.Messages+c.InFlight > 0 || c.Offered >= c.since {
			bad("want it cut off")
		}
	case queue.RejectPublish:
		if c.lost() > 0 || c.gone > 0 || c.pace == demoStuck && !full {
			bad("want nothing lost")
		}
	}
	if told := c.pace == demoSlowPace && c.lost() > 0 && c.gone == 0; told != (c.told > 0) || c.told > c.lost() || c.notices > c.received {
		bad("told of %d losses in %d notices", c.told, c.notices)
	}
	if c.pace == demoSlowPace && c.received == 0 || c.pace == demoStuck && c.received > 0 {
		bad("it has read %d messages", c.received)
	}
}

// TestDemoEndsEarly: an interruption brings the summary, whatever was going on.
func TestDemoEndsEarly(t *testing.T) {
	_, printed := rehearse(t, 20*time.Second, time.Second, false)
	if !strings.Contains(printed, "The slow and the stuck had not joined yet, so nobody paid anything.\n") || strings.Contains(printed, "\n  fast ") {
		t.Errorf("before the laggards:\n%s", printed)
	}
	report, printed := rehearse(t, 0, 7*time.Second, true)
	if stuck := report.rooms[queue.DropNewest].clients[2]; stuck.lost() == 0 || stuck.since > 101 {
		t.Errorf("after 2 s: %+v", stuck)
	}
	if !strings.Contains(printed, "The laggards paid") || strings.Contains(printed, "to go") {
		t.Errorf("after the laggards:\n%s", printed)
	}
}

// TestDemoInPlace: on a terminal each table is drawn over the one before, and
// fits.
func TestDemoInPlace(t *testing.T) {
	_, printed := rehearse(t, 4*time.Second, 0, true)
	frames := strings.Split(printed, "\x1b[J")
	if len(frames) < 14 {
		t.Fatalf("%d tables in 4 s", len(frames))
	}
	up := regexp.MustCompile(`^\x1b\[(\d+)A`)
	before := 0
	for i, frame := range frames[:len(frames)-1] {
		match := up.FindStringSubmatch(frame)
		switch {
		case (match == nil) != (i == 0):
			t.Fatalf("table %d begins %q", i, frame[:min(20, len(frame))])
		case i > 0 && match[1] != fmt.Sprint(before):
			t.Errorf("table %d is drawn %s lines up, the one before has %d", i, match[1], before)
		}
		before = strings.Count(frame, "\x1b[K\n")
		if before >= screenRows {
			t.Errorf("%d lines", before)
		}
		if i > 0 && strings.Count(frame, "\n") != before {
			t.Errorf("a line of table %d is not erased to its end", i)
		}
		for _, line := range strings.Split(frame, "\x1b[K\n") {
			if line = line[strings.LastIndexByte(line, '\n')+1:]; i > 0 && len(up.ReplaceAllString(line, "")) > screenColumns {
				t.Errorf("too long: %q", line)
			}
		}
	}
	if strings.Contains(printed, "join each room") || !strings.Contains(printed, "s to go; Ctrl-C ends it\x1b[K\n") {
		t.Error("the lines are those of what is no terminal")
	}
}

// TestDemoCommand plays for a moment over real sockets: too short for anybody
// to pay, long enough for a visitor.
func TestDemoCommand(t *testing.T) {
	reader, writer := io.Pipe()
	status := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		status <- run(t.Context(), []string{"demo", "--for", "800ms"}, nil, nil, writer, &stderr)
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	var printed strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&printed, lines.Text())
		if _, url, ok := strings.Cut(lines.Text(), "To watch it on a page: "); ok {
			if code, page := get(t, url); code != http.StatusOK || !strings.Contains(page, "<title>") {
				t.Errorf("the page is %d %q", code, page)
			}
			if _, rooms := get(t, url+"admin/rooms"); !strings.Contains(rooms, `"room":"keep-latest"`) {
				t.Errorf("the rooms are %s", rooms)
			}
		}
	}
	outcome{status: <-status, stdout: printed.String(), stderr: stderr.String()}.want(t, 0, "\nEvery message is accounted for: ", "")
	if !strings.Contains(printed.String(), "Nobody paid yet.\n  fast   got all ") || !strings.Contains(printed.String(), "  stuck  lost none of ") {
		t.Errorf("printed:\n%s", printed.String())
	}
}

func TestDemoFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	hubd(t, "demo", "--addr", taken.Addr().String()).want(t, 1, "", "hubd: listen on --addr: listen tcp ")
	hubd(t, "demo", "--addr", "0.0.0.0:0").want(t, 2, "", "--addr: 0.0.0.0:0 can be reached from other machines, which a demo should not be")
	hubd(t, "demo", "--addr", "x").want(t, 2, "", `--addr: "x" is not HOST:PORT`)
	hubd(t, "demo", "--addr", "localhost:99999").want(t, 2, "", `port "99999" is not a number`)
	hubd(t, "demo", "--for", "x").want(t, 2, "", `--for "x": write a duration`)

	var stderr bytes.Buffer
	status := run(t.Context(), []string{"demo", "--for", "1h"}, nil, nil, failingWriter{}, &stderr)
	outcome{status: status, stderr: stderr.String()}.want(t, 1, "", "closed pipe")
}

// TestDemoReportsImbalance: books that do not balance are a fault.
func TestDemoReportsImbalance(t *testing.T) {
	c := clientReport{Stats: queue.Stats{Offered: 10, Sent: 4, Queued: queue.Limits{Messages: 3}, InFlight: 1}}
	c.Dropped[queue.Overflow] = 2
	report := demoReport{rooms: []roomReport{{name: "lobby", clients: []clientReport{c}}}}
	if err := report.imbalance(); err != nil {
		t.Error(err)
	}
	report.rooms[0].clients[0].Sent = 3
	if err := report.imbalance(); err == nil || !strings.Contains(err.Error(), "lobby, fast: offered 10 frames and can account for 9") {
		t.Errorf("got %v", err)
	}
}

// TestDemoBalance: so are those of the hub as a whole.
func TestDemoBalance(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry(), metrics.Sets{
		Feeds: []string{"default"}, Policies: queue.PolicyNames(), DropReasons: queue.ReasonNames(),
		OverflowReasons: queue.LimitNames(),
	})
	series := m.Series(0, 0)
	series.Offered(3)
	series.Sent([]time.Duration{1, 2})
	series.Dropped(int(queue.Closed), 1)
	if err := new(demo).balance(m); err != nil {
		t.Error(err)
	}
	series.Offered(1)
	if err := new(demo).balance(m); err == nil || !strings.Contains(err.Error(), "offered 4 frames and can account for 3") {
		t.Errorf("got %v", err)
	}
}

// TestDemoSceneEnds: news that would come with the end of a scene do not come.
func TestDemoSceneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &demo{screen: newScreen(&out, false), start: time.Now()}
		for range 20 { // either may be seen first
			d.watch(t.Context(), time.Now().Add(d.screen.interval()), "a scene")
		}
		if out.Len() > 0 {
			t.Errorf("printed:\n%s", out.String())
		}
	})
}

// TestDemoSummaryOfMishaps: what should not happen is not glossed over.
func TestDemoSummaryOfMishaps(t *testing.T) {
	c := clientReport{Stats: queue.Stats{Offered: 10, Sent: 4}, since: 10}
	c.Dropped[queue.Overflow] = 6
	c.mean = time.Second
	report := demoReport{disturbed: 1, rooms: []roomReport{{policy: queue.DropOldest, published: 10, clients: []clientReport{c}}}}
	if got := report.summary(); !strings.Contains(got, "The fast one paid, too: ") || !strings.Contains(got, "  fast   lost 6 of 10 messages.\n") || strings.Contains(got, "the slow") {
		t.Errorf("got\n%s", got)
	}
}

func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := &screen{out: &b, live: true, columns: 5}
	s.table("one\ntwo\nthree of them\n")
	s.table("1\n")
	s.print("text\n")
	s.table("é234567\n")
	want := "one\x1b[K\ntwo\x1b[K\nthree\x1b[K\n\x1b[J" + "\x1b[3A1\x1b[K\n\x1b[J" + "text\n" + "é2345\x1b[K\n\x1b[J"
	if b.String() != want {
		t.Errorf("wrote %q, want %q", b.String(), want)
	}
	if newScreen(&b, false).live || newScreen(&b, false).interval() != 5*time.Second {
		t.Error("a buffer is no terminal")
	}
	s = &screen{out: failingWriter{}}
	s.print("a")
	s.table("b\n")
	if !errors.Is(s.err, io.ErrClosedPipe) {
		t.Errorf("the error is %v", s.err)
	}
}
