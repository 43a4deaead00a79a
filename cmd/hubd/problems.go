package main

import (
	"fmt"
	"slices"
	"strings"
)

// problems collects what is wrong with a configuration: a line each, which
// names the culprit and says what to do.
type problems []string

// add notes a problem once: the parser may look at a value several times.
func (p *problems) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(*p, text) {
		*p = append(*p, text)
	}
}

// err returns the problems as one error, nil without any. The command is what
// the hint at the end refers to.
func (p problems) err(command string) error {
	if len(p) == 0 {
		return nil
	}
	name, _, _ := strings.Cut(command, " ")
	return &usageError{command: name, problems: p}
}

// usageError is a mistake in the command line, the environment or the file.
type usageError struct {
	command  string
	problems problems
}

func (e *usageError) Error() string { return strings.Join(e.problems, "; ") }

// report is what the user gets to see.
func (e *usageError) report() string {
	var b strings.Builder
	if len(e.problems) == 1 {
		fmt.Fprintf(&b, "hubd: %s\n", e.problems[0])
	} else {
		fmt.Fprintf(&b, "hubd: %d problems:\n", len(e.problems))
		for _, problem := range e.problems {
			fmt.Fprintf(&b, "  %s\n", problem)
		}
	}
	if e.command == "" || e.command == "hubd" {
		b.WriteString("Run \"hubd --help\" for usage.\n")
	} else {
		fmt.Fprintf(&b, "Run \"hubd %s --help\" for usage.\n", e.command)
	}
	return b.String()
}

// closest returns the candidate most like word, "" if none is like it.
func closest(word string, candidates []string) string {
	best, bestDistance := "", len(word)/3+2
	for _, candidate := range candidates {
		if d := distance(word, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// didYouMean is the end of a message about an unknown word.
func didYouMean(word string, candidates []string) string {
	if c := closest(word, candidates); c != "" {
		return "did you mean " + c + "?"
	}
	return "known: " + strings.Join(candidates, ", ")
}

// distance is the number of bytes to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
