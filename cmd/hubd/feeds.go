package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"hubd/internal/hub"
	"hubd/internal/queue"
)

// feedReader turns the file's tree into feeds. It walks the tree itself, in
// place of decoding into structs, to report every mistake with its line and in
// the file's own terms.
type feedReader struct {
	file  string
	found problems
	feeds []feedEntry
}

// feedEntry is a feed of the file.
type feedEntry struct {
	hub.Feed
	where  string // file:line
	broken bool   // what is wrong with it has been reported already
}

// parseFeeds reads the text of a configuration file: the feeds, and all that
// is wrong with it.
func parseFeeds(file string, text []byte) ([]feedEntry, problems) {
	r := &feedReader{file: file}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		r.syntax(err)
		return nil, r.found
	}
	if len(document.Content) == 0 {
		return nil, nil // an empty file, or only comments
	}
	r.mapping(document.Content[0], "the file", fields{
		"feeds": func(n *yaml.Node) {
			for _, item := range r.list(n, "feeds") {
				feed, ok := r.feed(item)
				r.feeds = append(r.feeds, feedEntry{feed, r.at(item), !ok})
			}
		},
	})
	return r.feeds, r.found
}

// syntax reports text that is no YAML. The library's messages name lines in
// their own words; only its prefix is replaced.
func (r *feedReader) syntax(err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	var list *yaml.LoadErrors
	if errors.As(err, &list) && len(list.Errors) > 0 {
		message = list.Errors[0].Error()
	}
	r.found.add("%s: not valid YAML: %s", r.file, message)
}

func (r *feedReader) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.file, n.Line) }

func (r *feedReader) wrong(n *yaml.Node, format string, args ...any) {
	r.found.add("%s: %s", r.at(n), fmt.Sprintf(format, args...))
}

// fields are the known keys of a mapping, each with what reads its value.
type fields map[string]func(*yaml.Node)

func (r *feedReader) mapping(n *yaml.Node, what string, known fields) bool {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		r.wrong(n, "%s must be a mapping of %s", what, strings.Join(sortedKeys(known), ", "))
		return false
	}
	before := len(r.found)
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := known[key.Value]
		switch {
		case !ok:
			r.wrong(key, "unknown key %q; %s", key.Value, didYouMean(key.Value, sortedKeys(known)))
		case seen[key.Value]:
			r.wrong(key, "key %q appears twice; keep one", key.Value)
		default:
			read(value)
		}
		seen[key.Value] = true
	}
	return len(r.found) == before
}

func (r *feedReader) list(n *yaml.Node, what string) []*yaml.Node {
	n = resolved(n)
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, "%s must be a list; write each entry on a line of its own after a dash", what)
		return nil
	}
	return n.Content
}

func (r *feedReader) feed(n *yaml.Node) (hub.Feed, bool) {
	var feed hub.Feed
	ok := r.mapping(n, "a feed", fields{
		"name":  func(n *yaml.Node) { feed.Name = r.word(n, "name") },
		"match": func(n *yaml.Node) { feed.Match = r.words(n, "match") },
		"policy": func(n *yaml.Node) {
			feed.Policy = r.policy(n)
		},
		"allow_policies": func(n *yaml.Node) {
			feed.Allow = []queue.Policy{}
			for _, item := range r.list(n, "allow_policies") {
				feed.Allow = append(feed.Allow, r.policy(item))
			}
		},
		"queue": func(n *yaml.Node) {
			r.mapping(n, "queue", fields{
				"messages": func(n *yaml.Node) { feed.Queue.Messages = read(r, n, "messages", parseLimit) },
				"bytes":    func(n *yaml.Node) { feed.Queue.Bytes = read(r, n, "bytes", parseLimitBytes) },
			})
		},
		"history": func(n *yaml.Node) {
			feed.History = hub.DefaultHistory()
			r.mapping(n, "history", fields{
				"messages": func(n *yaml.Node) { feed.History.Messages = read(r, n, "messages", parseNoneOr) },
				"bytes":    func(n *yaml.Node) { feed.History.Bytes = read(r, n, "bytes", parseLimitBytes) },
				"age":      func(n *yaml.Node) { feed.History.Age = time.Duration(read(r, n, "age", parsePeriod)) },
			})
		},
		"ttl": func(n *yaml.Node) { feed.TTL = time.Duration(read(r, n, "ttl", parsePeriod)) },
	})
	return feed, ok
}

// word reads a scalar that is text.
func (r *feedReader) word(n *yaml.Node, what string) string {
	return read(r, n, what, func(text string) (string, error) {
		if text == "" {
			return "", errors.New("it is empty; write a value or leave the key out")
		}
		return text, nil
	})
}

func (r *feedReader) words(n *yaml.Node, what string) []string {
	var words []string
	for _, item := range r.list(n, what) {
		words = append(words, r.word(item, what))
	}
	return words
}

func (r *feedReader) policy(n *yaml.Node) queue.Policy {
	return read(r, n, "policy", func(text string) (queue.Policy, error) {
		policy, err := queue.ParsePolicy(text)
		if err != nil {
			return 0, errors.New(didYouMean(text, queue.PolicyNames()))
		}
		return policy, nil
	})
}

// read parses a scalar and reports what is wrong with it.
func read[T any](r *feedReader, n *yaml.Node, what string, parse func(string) (T, error)) T {
	var zero T
	n = resolved(n)
	if n.Kind != yaml.ScalarNode {
		r.wrong(n, "%s must be a single value", what)
		return zero
	}
	value, err := parse(n.Value)
	if err != nil {
		r.wrong(n, "%s %q: %v", what, n.Value, err)
		return zero
	}
	return value
}

// parseNoneOr reads a number that may be 0, for none.
func parseNoneOr(text string) (int, error) {
	if text == "0" {
		return 0, nil
	}
	n, err := parseLimit(text)
	if err != nil {
		err = errors.New("write a whole number; 0 is none")
	}
	return n, err
}

func parseLimit(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New("write a whole number, 1 or more")
	}
	return int(n), nil
}

func parseLimitBytes(text string) (int, error) {
	n, err := parseSize(text)
	if err == nil && n < 1 {
		err = errors.New("write a size of 1 or more, like 1MiB")
	}
	return int(n), err
}

// resolved follows an alias to what it stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// sortedKeys is the known keys in a stable order for messages.
func sortedKeys(known fields) []string {
	keys := make([]string, 0, len(known))
	for _, key := range []string{"feeds", "name", "match", "policy", "allow_policies", "queue", "history", "messages", "bytes", "age", "ttl"} {
		if known[key] != nil {
			keys = append(keys, key)
		}
	}
	return keys
}
