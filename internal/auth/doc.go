// Package auth turns tokens into grants: what a subscriber, a publisher or an
// operator may do, and until when.
//
// A token is a JWT (RFC 7519) with sub, exp and the claim hubd, which lists
// globs on the names of the rooms that may be joined and published to. A
// Verifier has one source of keys: a secret (HS256), a public key (RS256, ES256
// or EdDSA, whichever it is for), or the URL of a key set (RFC 7517). A token
// does not choose: its algorithm must be the one that its key is for, so no
// public key is ever taken for a secret, and nothing is unsigned.
//
// A key set is fetched in the background and kept through outages. Tokens that
// name a key that is not there make the next fetch come earlier, but there is
// at most one an interval, however many such tokens come.
//
// Invariants:
//   - nothing of a token is in an error: what Verify refuses with is one of a
//     list of fixed texts, each of which names the claim at fault;
//   - Verify neither waits nor reads the clock;
//   - a claim that cannot be understood refuses the token; one that is not
//     there grants nothing.
//
// Files: verifier.go, from a token to its grant; claims.go, what a token says;
// grant.go, what it permits; keys.go, keys and their algorithms; jwks.go, keys
// fetched from a URL; mint.go, making tokens.
package auth
