package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"hubd/web"
)

func get(t *testing.T, method, target string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHandler(t *testing.T) {
	for _, tt := range []struct {
		method, target string
		status         int
		contentType    string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/assets/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/assets/page.css", 200, "text/css; charset=utf-8"},
		{"GET", "/assets/favicon.svg", 200, "image/svg+xml"},
		{"GET", "/favicon.ico", 200, "image/svg+xml"},
		{"GET", "/client/hubd.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/client/hubd.d.ts", 200, "text/plain; charset=utf-8"},
		{"GET", "/client/package.json", 404, "application/problem+json"},
		{"GET", "/index.html", 404, "application/problem+json"},
		{"GET", "/assets/", 404, "application/problem+json"},
		{"GET", "/assets/../index.html", 404, "application/problem+json"},
		{"GET", "/assets/nothing.js", 404, "application/problem+json"},
		{"POST", "/", 405, "application/problem+json"},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			resp := get(t, tt.method, tt.target, nil)
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.contentType {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, resp.Header.Get("Content-Type"), tt.status, tt.contentType)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options":     "nosniff",
				"Referrer-Policy":            "no-referrer",
				"Cross-Origin-Opener-Policy": "same-origin",
			} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			policy := resp.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
				if !strings.Contains(policy, want) {
					t.Errorf("Content-Security-Policy %q lacks %s", policy, want)
				}
			}
			if strings.Contains(policy, "unsafe") {
				t.Errorf("Content-Security-Policy %q allows what is unsafe", policy)
			}
			if empty := body(t, resp) == ""; empty != (tt.method == "HEAD") {
				t.Errorf("empty body: %v", empty)
			}
		})
	}
}

func TestRevalidation(t *testing.T) {
	first := get(t, "GET", "/assets/main.js", nil)
	tag := first.Header.Get("ETag")
	if tag == "" || strings.HasPrefix(tag, "W/") || first.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("ETag %q, Cache-Control %q", tag, first.Header.Get("Cache-Control"))
	}
	if other := get(t, "GET", "/assets/page.css", nil).Header.Get("ETag"); other == tag {
		t.Errorf("two files have the entity tag %s", tag)
	}
	again := get(t, "GET", "/assets/main.js", http.Header{"If-None-Match": {tag}})
	if again.StatusCode != http.StatusNotModified || body(t, again) != "" {
		t.Errorf("revalidating an unchanged file: %d", again.StatusCode)
	}
	if again.Header.Get("Content-Security-Policy") == "" {
		t.Error("304 has no Content-Security-Policy, which would replace the stored one")
	}
}

// The policy would stop inline code in browsers; this says so before one runs.
func TestNothingInline(t *testing.T) {
	page := body(t, get(t, "GET", "/", nil))
	for _, bad := range []string{`<style`, `\sstyle=`, `\son[a-z]+=`, `<script(?:[^>]*)>[^<]`, `https?://`, `javascript:`} {
		if found := regexp.MustCompile(bad).FindString(page); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
	for _, name := range assets(t) {
		if path.Ext(name) != ".js" {
			continue
		}
		script := body(t, get(t, "GET", "/assets/"+name, nil))
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
			if strings.Contains(script, bad) {
				t.Errorf("%s uses %s", name, bad)
			}
		}
	}
}

func TestEveryAssetIsUsed(t *testing.T) {
	all := body(t, get(t, "GET", "/", nil))
	for _, name := range assets(t) {
		all += body(t, get(t, "GET", "/assets/"+name, nil))
	}
	for _, name := range assets(t) {
		if !strings.Contains(all, `assets/`+name+`"`) && !strings.Contains(all, `'./`+name+`'`) {
			t.Errorf("nothing loads %s", name)
		}
	}
}

func assets(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("page/assets")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestClientIsForEverybody: any site may load the module, and nothing else.
func TestClientIsForEverybody(t *testing.T) {
	for target, public := range map[string]bool{"/client/hubd.js": true, "/": false, "/assets/main.js": false} {
		resp := get(t, "GET", target, http.Header{"Origin": {"https://elsewhere.example"}})
		if got := resp.Header.Get("Access-Control-Allow-Origin") == "*"; got != public {
			t.Errorf("%s: open to other sites: %v", target, got)
		}
		if got := resp.Header.Get("Cross-Origin-Resource-Policy") == "cross-origin"; got != public {
			t.Errorf("%s: %q", target, resp.Header.Get("Cross-Origin-Resource-Policy"))
		}
		again := get(t, "GET", target, http.Header{"If-None-Match": {resp.Header.Get("ETag")}})
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: asked again with its entity tag: %d", target, again.StatusCode)
		}
	}
}
