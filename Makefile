# make build    the binary, as bin/hubd
# make test     every check and test, as continuous integration runs them
# make race     the Go tests under the race detector, nothing else
# make fuzz     every fuzz target for FUZZTIME (default 1m) each
# make lint     golangci-lint; the first run builds it, which takes minutes
# make bench    the benchmarks
# make image    the container image, with docker, podman or buildah

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null)
REVISION ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
FUZZTIME ?= 1m
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

LDFLAGS := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)

.PHONY: build test race fuzz lint bench image clean

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/hubd ./cmd/hubd

test:
	scripts/test

race:
	go test -race ./...

fuzz:
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file func; do \
		go test "$$(dirname "$$file")" -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) || exit 1; \
	done

lint:
	go run $(GOLANGCI) run

bench:
	go test -run '^$$' -bench . -benchmem ./...

# HEALTHCHECK is part of the docker format alone.
ENGINE ?= $(firstword $(foreach e,docker podman buildah,$(if $(shell command -v $(e)),$(e))))
image:
	$(ENGINE) build $(if $(filter docker,$(ENGINE)),,--format docker) -f deploy/Dockerfile \
		--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) -t hubd .

clean:
	rm -rf bin
