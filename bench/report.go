package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is what one command reports.
type figure struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Setting string   `json:"setting"`
	Cases   []string `json:"cases"`
	Rows    []*row   `json:"rows"`
	Checks  []check  `json:"checks"`
}

// row is one quantity, measured once a round in each case.
type row struct {
	Name  string          `json:"name"`
	Unit  string          `json:"unit,omitempty"`
	Cells map[string]cell `json:"cases"`
}

// cell is what one case gave.
type cell struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Runs   []float64 `json:"runs"`
}

func newCell(runs []float64) cell {
	return cell{Median: median(runs), Min: slices.Min(runs), Max: slices.Max(runs), Runs: runs}
}

// check is an aim and whether it was met.
type check struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Aim   string  `json:"aim"`
	Met   bool    `json:"met"`
	// Exact aims do not depend on the machine: missing one is a fault.
	Exact bool `json:"exact"`
}

// add notes one run's value. Cases and rows appear in the order of their first
// value.
func (f *figure) add(name, unit, inCase string, value float64) {
	if !slices.Contains(f.Cases, inCase) {
		f.Cases = append(f.Cases, inCase)
	}
	r := f.row(name)
	if r == nil {
		r = &row{Name: name, Unit: unit, Cells: map[string]cell{}}
		f.Rows = append(f.Rows, r)
	}
	r.Cells[inCase] = newCell(append(r.Cells[inCase].Runs, value))
}

func (f *figure) row(name string) *row {
	if i := slices.IndexFunc(f.Rows, func(r *row) bool { return r.Name == name }); i >= 0 {
		return f.Rows[i]
	}
	return nil
}

// runs returns the values of a row and case; none where nothing was noted.
func (f *figure) runs(name, inCase string) []float64 {
	if r := f.row(name); r != nil {
		return r.Cells[inCase].Runs
	}
	return nil
}

// compare adds a row with the ratios of a row's cases to its case base, round
// by round.
func (f *figure) compare(name, base string) (row string) {
	row = name + " ÷ " + base
	for _, c := range slices.Clone(f.Cases) {
		if c == base {
			continue
		}
		for _, ratio := range ratios(f.runs(name, c), f.runs(name, base)) {
			f.add(row, "", c, ratio)
		}
	}
	return row
}

// atMost, atLeast and exactly check a row's median, or all of its values, in
// one case against an aim.
func (f *figure) atMost(row, inCase string, aim float64) {
	v := median(f.runs(row, inCase))
	f.Checks = append(f.Checks, check{row + ", " + inCase, v, "at most " + number(aim), v <= aim, false})
}

func (f *figure) atLeast(row, inCase string, aim float64) {
	v := median(f.runs(row, inCase))
	f.Checks = append(f.Checks, check{row + ", " + inCase, v, "at least " + number(aim), v >= aim, false})
}

func (f *figure) exactly(row, inCase string, aim float64) {
	worst := aim
	for _, v := range f.runs(row, inCase) {
		if math.IsNaN(v) || math.Abs(v-aim) > math.Abs(worst-aim) {
			worst = v
		}
	}
	f.Checks = append(f.Checks, check{row + ", " + inCase, worst, "exactly " + number(aim), worst == aim, true})
}

// exactlyAll checks all values in one case, whatever the row.
func (f *figure) exactlyAll(inCase string, aim float64) {
	first := len(f.Checks)
	for _, r := range f.Rows {
		if len(r.Cells[inCase].Runs) > 0 {
			f.exactly(r.Name, inCase, aim)
		}
	}
	if !slices.ContainsFunc(f.Checks[first:], func(c check) bool { return !c.Met }) {
		f.Checks = append(f.Checks[:first], check{"every " + inCase, aim, "exactly " + number(aim), true, true})
	}
}

// failed reports whether an aim was missed that does not depend on the machine.
func (f *figure) failed() bool {
	return slices.ContainsFunc(f.Checks, func(c check) bool { return c.Exact && !c.Met })
}

// writeText prints the figure for people: each cell is a median and, of several
// rounds, the least and the largest value.
func (f *figure) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n%s\n\n", f.Name, f.Title, f.Setting)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\t%s\n", strings.Join(f.Cases, "\t"))
	for _, r := range f.Rows {
		name := r.Name
		if r.Unit != "" {
			name += ", " + r.Unit
		}
		fmt.Fprint(t, name)
		for _, c := range f.Cases {
			fmt.Fprint(t, "\t", r.Cells[c].text())
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, c := range f.Checks {
		verdict := "met"
		if !c.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "  %-6s  %s: %s, aim %s\n", verdict, c.Name, number(c.Value), c.Aim)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func (c cell) text() string {
	switch {
	case len(c.Runs) == 0:
		return "-"
	case c.Min == c.Max:
		return number(c.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", number(c.Median), number(c.Min), number(c.Max))
}

// number prints three digits, or a whole number with its thousands apart.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case v == math.Trunc(v) && abs < 1000:
		return fmt.Sprintf("%.0f", v)
	case abs < 1:
		return fmt.Sprintf("%.3f", v)
	case abs < 10:
		return fmt.Sprintf("%.2f", v)
	case abs < 100:
		return fmt.Sprintf("%.1f", v)
	case abs < 1000:
		return fmt.Sprintf("%.0f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// writeJSON prints figures for programs. What was not measured is null there:
// JSON has no NaN.
func writeJSON(w io.Writer, figures []*figure) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"figures": figures})
}

// MarshalJSON writes NaN as null.
func (c cell) MarshalJSON() ([]byte, error) {
	runs := make([]any, len(c.Runs))
	for i, v := range c.Runs {
		runs[i] = orNull(v)
	}
	return json.Marshal(map[string]any{"median": orNull(c.Median), "min": orNull(c.Min), "max": orNull(c.Max), "runs": runs})
}

// MarshalJSON writes NaN as null.
func (c check) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"name": c.Name, "value": orNull(c.Value), "aim": c.Aim, "met": c.Met, "exact": c.Exact})
}

func orNull(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}
