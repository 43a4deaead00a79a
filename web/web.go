// Package web is a placeholder until the page lands.
package web

import "net/http"

// Handler serves the page.
func Handler() http.Handler { return http.NotFoundHandler() }
