// Package queue is the bounded queue between a publisher that never waits and
// a writer that may be slow.
package queue
