package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// The types of flags. Their values are parsed by mappers of ours, which note a
// wrong value as a problem and go on, so that all are reported at once.
type (
	size   int           // bytes
	count  int           // a number, 0 or more
	period time.Duration // 0 or more
	toggle bool
	choice string // one of the words in the flag's tag "choices"
)

func (s size) String() string   { return formatSize(int(s)) }
func (c count) String() string  { return strconv.Itoa(int(c)) }
func (d period) String() string { return formatDuration(time.Duration(d)) }

func (p *program) mappers() []kong.Option {
	return []kong.Option{
		mapper(p, parseSize),
		mapper(p, parseCount),
		mapper(p, parsePeriod),
		mapper(p, parseSpeed),
		mapper(p, parseSubscriber),
		mapper(p, parsePerSecond),
		kong.TypeMapper(reflect.TypeFor[toggle](), toggleMapper{p}),
		kong.TypeMapper(reflect.TypeFor[choice](), choiceMapper{p}),
	}
}

func mapper[T any](p *program, parse func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(
		func(ctx *kong.DecodeContext, target reflect.Value) error {
			word, err := ctx.Scan.PopValue("value")
			if err != nil {
				return err
			}
			value, err := parse(word.String())
			if err != nil {
				p.reject(ctx.Value.Name, word.String(), err)
				return nil
			}
			target.Set(reflect.ValueOf(value))
			return nil
		}))
}

// reject notes that a flag's value is wrong, under the name the user gave it.
func (p *program) reject(flag, value string, err error) {
	name := "--" + flag
	if p.env[variable(flag)] == value {
		name = variable(flag)
	}
	p.problems.add("%s %q: %v", name, value, err)
}

type toggleMapper struct{ p *program }

func (toggleMapper) IsBool() bool { return true }

func (m toggleMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	word := fmt.Sprint(ctx.Scan.Pop().Value)
	switch strings.ToLower(word) {
	case "true", "1", "yes", "on":
		target.SetBool(true)
	case "false", "0", "no", "off":
		target.SetBool(false)
	default:
		m.p.reject(ctx.Value.Name, word, errors.New("write true or false"))
	}
	return nil
}

type choiceMapper struct{ p *program }

func (m choiceMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	word, err := ctx.Scan.PopValue("value")
	if err != nil {
		return err
	}
	choices := strings.Split(ctx.Value.Tag.Get("choices"), ",")
	for _, c := range choices {
		if c == word.String() {
			target.SetString(c)
			return nil
		}
	}
	m.p.reject(ctx.Value.Name, word.String(), errors.New("write one of "+strings.Join(choices, ", ")))
	return nil
}

var sizeUnits = []struct {
	suffix string
	bytes  int
}{{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"b", 1}, {"", 1}}

// parseSize reads a number of bytes: 65536, 64KiB, 1MiB, 2GiB.
func parseSize(text string) (size, error) {
	wrong := errors.New("write a size in bytes like 65536, 64KiB or 1MiB")
	lower := strings.ToLower(strings.TrimSpace(text))
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(lower, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil {
			return 0, wrong
		}
		if n > uint64(math.MaxInt/unit.bytes) {
			return 0, errors.New("this is more than any machine has; write a smaller size")
		}
		return size(int(n) * unit.bytes), nil
	}
	return 0, wrong
}

// formatSize is the shortest exact form that parseSize reads.
func formatSize(n int) string {
	for _, unit := range []struct {
		suffix string
		bytes  int
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return strconv.Itoa(n/unit.bytes) + unit.suffix
		}
	}
	return strconv.Itoa(n)
}

func parseCount(text string) (count, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, errors.New("write a whole number, 0 or more")
	}
	return count(n), nil
}

func parsePeriod(text string) (period, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("write a duration like 500ms, 25s or 1m30s")
	}
	return period(d), nil
}

// formatDuration is d without the zero units that Duration.String appends.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
