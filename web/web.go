package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page
var files embed.FS

// client is the module for browsers and Node, and its types for editors. It is
// a package of its own as well (package.json).
//
//go:embed hubd.js hubd.d.ts
var client embed.FS

// contentTypes has every kind of file that the page may consist of. The
// system's table is not asked: it differs between machines.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".ts":   "text/plain; charset=utf-8",
}

// contentSecurityPolicy lets the page load its own files and talk to its own
// origin, and nothing else. connect-src 'self' includes WebSockets.
const contentSecurityPolicy = "default-src 'none'; " +
	"script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// asset is one file, ready to be served.
type asset struct {
	contentType string
	etag        string
	content     []byte
	// public: any site's page may load it. It holds no secret, and what it then
	// does at the hub is judged by the hub.
	public bool
}

// Handler serves the page at /, its parts below /assets/, the client module
// below /client/, and the icon that browsers ask for at /favicon.ico; anything
// else is 404. Answers carry a
// strong entity tag and must be revalidated, so that a new binary shows at
// once. It is safe for concurrent use.
func Handler() http.Handler {
	assets := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, assets)
	})
}

// load reads the embedded files by the URL path they are served at.
func load() map[string]asset {
	assets := make(map[string]asset)
	add := func(files fs.FS, root string, to func(name string) string, public bool) {
		err := fs.WalkDir(files, root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(content)
			assets[to(name)] = asset{
				contentType: contentTypes[path.Ext(name)],
				etag:        `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
				content:     content,
				public:      public,
			}
			return nil
		})
		if err != nil {
			panic("web: reading the embedded files: " + err.Error()) // they are in the binary
		}
	}
	add(files, "page", func(name string) string { return strings.TrimPrefix(name, "page") }, false)
	add(client, ".", func(name string) string { return "/client/" + name }, true)
	assets["/"] = assets["/index.html"]
	assets["/favicon.ico"] = assets["/assets/favicon.svg"]
	delete(assets, "/index.html")
	return assets
}

func serve(w http.ResponseWriter, r *http.Request, assets map[string]asset) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")

	a, ok := assets[r.URL.Path]
	if !ok {
		problem(w, http.StatusNotFound, `{"type":"about:blank","title":"Not Found","status":404,"code":"not_found"}`)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		problem(w, http.StatusMethodNotAllowed, `{"type":"about:blank","title":"Method Not Allowed","status":405}`)
		return
	}
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	if a.public {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
}

func problem(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n"))
}
