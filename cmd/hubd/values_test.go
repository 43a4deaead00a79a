package main

import (
	"slices"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "1": 1, "65536": 64 << 10, "64KiB": 64 << 10, "64kib": 64 << 10, "1 MiB": 1 << 20, "2GiB": 2 << 30, "7B": 7,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5MiB", "1KB", "1K", "x", "9999999999999999999", "99999999999GiB", "0x10", "+1"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
	for _, n := range []int{0, 1, 1000, 1024, 1536, 1 << 20, 3 << 20, 1<<30 + 1, 5 << 30} {
		if got, err := parseSize(formatSize(n)); err != nil || int(got) != n {
			t.Errorf("%d is printed as %q, which is read as %d, %v", n, formatSize(n), got, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"}, {time.Second, "1s"}, {time.Minute, "1m"}, {90 * time.Second, "1m30s"},
		{time.Hour, "1h"}, {time.Hour + time.Second, "1h0m1s"}, {10 * time.Hour, "10h"}, {20 * time.Minute, "20m"},
		{1500 * time.Millisecond, "1.5s"},
	} {
		got := formatDuration(test.d)
		if got != test.want {
			t.Errorf("%v is printed as %q, want %q", test.d, got, test.want)
		}
		if back, err := parsePeriod(got); err != nil || time.Duration(back) != test.d {
			t.Errorf("%q is read as %v, %v", got, time.Duration(back), err)
		}
	}
}

func TestClosest(t *testing.T) {
	words := []string{"tail", "publish", "serve"}
	for word, want := range map[string]string{"tial": "tail", "tails": "tail", "publsh": "publish", "server": "serve", "xyz": "", "": ""} {
		if got := closest(word, words); got != want {
			t.Errorf("closest(%q) = %q, want %q", word, got, want)
		}
	}
	if d := distance("kitten", "sitting"); d != 3 {
		t.Errorf("distance is %d, want 3", d)
	}
}

func TestMaxConnections(t *testing.T) {
	for _, test := range []struct{ asked, descriptors, want, problems int }{
		{0, 0, 10_000, 0},           // unknown
		{0, 256, 192, 0},            // at least 64 are kept
		{0, 100, 50, 0},             // but never more than half
		{0, 20_000, 18_976, 0},      // at most 1,024 are kept
		{0, 8_192, 7_680, 0},        // else a sixteenth
		{500, 20_000, 500, 0},       // as asked
		{19_984, 20_000, 19_984, 0}, // just possible
		{19_985, 20_000, 19_985, 1},
		{50_000, 0, 50_000, 0},
	} {
		var p program
		if got := p.maxConnections(test.asked, test.descriptors); got != test.want || len(p.problems) != test.problems {
			t.Errorf("maxConnections(%d, %d) = %d with problems %v; want %d and %d",
				test.asked, test.descriptors, got, p.problems, test.want, test.problems)
		}
	}
}

func TestOrigins(t *testing.T) {
	var p program
	got := p.origins([]string{"https://A.example:443", " http://b.example:80", "http://c.example:443", "", "app://local"})
	want := []string{"https://a.example", "http://b.example", "http://c.example:443", "app://local"}
	if !slices.Equal(got, want) || len(p.problems) > 0 {
		t.Errorf("got %q with problems %v, want %q", got, p.problems, want)
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":               "",
		"hello, wörld 🎈": "hello, wörld 🎈",
		"a\tb":           "a\tb",
		"two\nlines":     `"two\nlines"`,
		"\x1b[31mred":    `"\x1b[31mred"`,
		"c1 \u009b31m":   `"c1 \u009b31m"`,
		"bidi \u202e":    `"bidi \u202e"`,
		"bad \xff":       `"bad \xff"`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
}
