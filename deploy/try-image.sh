#!/usr/bin/env bash
# Builds the image without a container registry and tries it: as root, with
# buildah, podman, runc and busybox-static of Debian.
#
# The builder stage's image is made here, from this machine's Go toolchain, its
# certificates and busybox. Environment: GO_ROOT (default: that of go env),
# PORT (default 18999), STORAGE (a driver of containers-storage, default vfs).
set -euo pipefail
cd "$(dirname "$0")/.."

go_root=${GO_ROOT:-$(go env GOROOT)}
port=${PORT:-18999}
storage=(--storage-driver "${STORAGE:-vfs}")
builder=localhost/hubd-builder
image=localhost/hubd:try

if ! buildah "${storage[@]}" inspect --type image "$builder" >/dev/null 2>&1; then
  echo "== builder image"
  container=$(buildah "${storage[@]}" from scratch)
  buildah "${storage[@]}" copy -q "$container" "$(command -v busybox)" /bin/busybox
  buildah "${storage[@]}" copy -q "$container" "$go_root" /usr/local/go
  buildah "${storage[@]}" copy -q "$container" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
  buildah "${storage[@]}" run --isolation chroot "$container" /bin/busybox --install -s /bin
  buildah "${storage[@]}" run --isolation chroot "$container" /bin/mkdir -p /tmp /root
  buildah "${storage[@]}" config --env PATH=/usr/local/go/bin:/bin --env HOME=/root "$container"
  buildah "${storage[@]}" commit -q --rm "$container" "$builder"
fi

echo "== image"
arguments=()
for name in GOPROXY GOSUMDB GOFLAGS; do
  arguments+=(--build-arg "$name=$(go env "$name")")
done
buildah "${storage[@]}" bud --format docker --timestamp 0 --isolation chroot \
  --build-arg BUILDER="$builder" --build-arg VERSION=try --build-arg REVISION=local "${arguments[@]}" \
  -f deploy/Dockerfile -t "$image" .
buildah "${storage[@]}" inspect --type image --format '{{.Docker.Config.User}} {{.Docker.Config.Healthcheck.Test}}' "$image"

# Both limits are given, as podman's own are more than a confined root may set.
confined=(--network=host --read-only --cap-drop=all --security-opt no-new-privileges
  --memory=64m --ulimit nofile=20000:20000 --ulimit nproc=1024:1024)
run() { podman "${storage[@]}" --runtime runc --cgroup-manager cgroupfs run --pull=never "${confined[@]}" "$@"; }
in_container() { podman "${storage[@]}" --runtime runc --cgroup-manager cgroupfs "$@"; }

echo "== without an explicit choice it refuses"
status=0
run --rm --no-healthcheck "$image" || status=$?
[ "$status" = 2 ] || { echo "exit status $status, want 2" >&2; exit 1; }

echo "== with one it runs"
name=hubd-try-$$
# Without systemd nothing would run the health check: it is run by hand.
run -d --name "$name" --no-healthcheck -e "HUBD_ADDR=127.0.0.1:$port" "$image" >/dev/null
trap 'in_container rm -f "$name" >/dev/null 2>&1 || true' EXIT
for _ in $(seq 50); do
  in_container exec "$name" /hubd health >/dev/null 2>&1 && break
  sleep 0.1
done
in_container exec "$name" /hubd health
in_container exec "$name" /hubd version
in_container exec "$name" /hubd publish lobby hello --url "http://127.0.0.1:$port"
grep -E '^(Uid|NoNewPrivs|CapEff)' "/proc/$(in_container inspect --format '{{.State.Pid}}' "$name")/status"

echo "== it stops in order"
started=$(date +%s%N)
in_container stop -t 10 "$name" >/dev/null
echo "stopped in $((($(date +%s%N) - started) / 1000000)) ms"
in_container logs "$name"
status=$(in_container inspect --format '{{.State.ExitCode}}' "$name")
[ "$status" = 0 ] || { echo "exit status $status" >&2; exit 1; }
echo "== all as it should be"
