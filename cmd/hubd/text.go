package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable returns text for one line of a terminal. What could break the line
// or command the terminal makes the whole appear quoted, with escapes.
func printable(text string) string {
	clean := utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '\t' && !unicode.IsPrint(r)
	})
	if clean {
		return text
	}
	return strconv.Quote(text)
}
