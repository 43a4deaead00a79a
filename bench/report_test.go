package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestFigureComparesWithinRounds(t *testing.T) {
	var f figure
	for i, v := range []float64{10, 20, 30} {
		f.add("p99", "ms", "none", v)
		f.add("p99", "ms", "some", v*float64(i+1))
	}
	row := f.compare("p99", "none")
	if got := f.row(row).Cells["some"]; got.Median != 2 || got.Min != 1 || got.Max != 3 {
		t.Errorf("ratios %+v, want median 2 of 1 to 3", got)
	}
	if got := f.runs(row, "none"); got != nil {
		t.Errorf("the base is compared with itself: %v", got)
	}
	f.atMost(row, "some", 2)
	f.atMost(row, "some", 1.9)
	f.atLeast(row, "some", 2.1)
	for i, want := range []bool{true, false, false} {
		if f.Checks[i].Met != want {
			t.Errorf("check %d met: %v, want %v", i, f.Checks[i].Met, want)
		}
	}
	if f.failed() {
		t.Error("an aim that depends on the machine was made a fault")
	}
}

func TestExactAimsLookAtEveryRun(t *testing.T) {
	for _, c := range []struct {
		runs []float64
		met  bool
	}{
		{[]float64{0, 0, 0}, true},
		{[]float64{0, 1, 0}, false},
		{[]float64{0, math.NaN(), 0}, false},
	} {
		var f figure
		for _, v := range c.runs {
			f.add("lost", "", "all", v)
		}
		f.exactly("lost", "all", 0)
		if f.Checks[0].Met != c.met || f.failed() == c.met {
			t.Errorf("%v: met %v, want %v", c.runs, f.Checks[0].Met, c.met)
		}
	}
}

func TestExactlyAllSumsUpWhatIsMet(t *testing.T) {
	var f figure
	f.add("x", "", "difference", 0)
	f.add("y", "", "difference", 0)
	f.add("y", "", "other", 5)
	f.exactlyAll("difference", 0)
	if len(f.Checks) != 1 || f.failed() {
		t.Errorf("checks %+v, want one that is met", f.Checks)
	}
	f.Checks = nil
	f.add("y", "", "difference", 1)
	f.exactlyAll("difference", 0)
	if len(f.Checks) != 2 || !f.failed() {
		t.Errorf("checks %+v, want each row's, one missed", f.Checks)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2: "2", 1.25: "1.25", 0.0042: "0.004", 12.34: "12.3", 123.4: "123", 999: "999",
		1234: "1,234", 123456.7: "123,457", 1234567: "1,234,567", -1234: "-1,234", -123456: "-123,456",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestReportsCanBeWritten(t *testing.T) {
	f := figure{Name: "n", Title: "t", Setting: "s"}
	f.add("x", "ms", "a", math.NaN())
	f.add("y", "", "b", 3)
	f.atMost("y", "b", 2)
	var text strings.Builder
	if err := f.writeText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "MISSED  y, b: 3, aim at most 2") {
		t.Errorf("the check is not to be seen:\n%s", text.String())
	}
	var out strings.Builder
	if err := writeJSON(&out, []*figure{&f}); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Figures []struct {
			Rows []struct {
				Cases map[string]struct{ Runs []*float64 }
			}
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Figures[0].Rows[0].Cases["a"].Runs; len(got) != 1 || got[0] != nil {
		t.Errorf("NaN was not written as null: %s", out.String())
	}
}
