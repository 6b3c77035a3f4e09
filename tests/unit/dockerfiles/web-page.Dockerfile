# llama.cpp for cpu: the build context is the source at the commit of the labels.
FROM debian:13 AS build
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
    ca-certificates \
    ccache \
    cmake \
    g++ \
    git \
    ninja-build \
    pkg-config \
    npm \
 && rm -rf /var/lib/apt/lists/*
# How many compilers run at once; empty: as many as there are cores, and memory for.
ARG JOBS=
RUN --mount=type=bind,target=/source,rw \
    --mount=type=cache,id=gpuquilt-ccache,target=/ccache \
    set -eu; \
    fail() { echo "gpuquilt: $1"; exit 3; }; \
    export HOME=/root LC_ALL=C NINJA_STATUS='[%p] ' CCACHE_DIR=/ccache CCACHE_MAXSIZE=2G; \
    source=/source; \
    build=/build; \
    partial=/release; \
    renice -n 10 $$ >/dev/null 2>&1 || true; \
    mkdir -p "$build"; \
    git config --global --add safe.directory "$source"; \
    head=$(git -C "$source" rev-parse HEAD); \
    if [ "$head" != 2222222222222222222222222222222222222222 ]; then \
        fail "$source is at $head and not at 2222222222222222222222222222222222222222: run again."; \
    fi; \
    node=$(node --version 2>/dev/null || echo none); \
    if ! echo "$node" | grep -qE '^v(20\.(19|[2-9][0-9])|22\.(1[2-9]|[2-9][0-9])|2[3-9]|[3-9][0-9])\.'; then \
        fail "llama-server's web page wants Node.js 20.19 or 22.12, and this is $node: set \`web_ui\` to False."; \
    fi; \
    echo configuring; \
    if ! cmake -G Ninja -S "$source" -B "$build" \
        -DBUILD_SHARED_LIBS=ON \
        -DCMAKE_BUILD_TYPE=Release \
        -DGGML_AVX=ON \
        -DGGML_AVX2=ON \
        -DGGML_BMI2=ON \
        -DGGML_F16C=ON \
        -DGGML_FMA=ON \
        -DGGML_NATIVE=OFF \
        -DGGML_RPC=ON \
        -DGGML_RPC_RDMA=OFF \
        -DGGML_SSE42=ON \
        -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_UI=ON \
        -DLLAMA_CURL=OFF \
        -DLLAMA_OPENSSL=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF \
        -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
        -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN/../lib;$ORIGIN' \
        >"$build/configure.log" 2>&1; \
    then \
        cat "$build/configure.log"; \
        exit 1; \
    fi; \
    if line=$(grep -E -m 1 '(GGML|LLAMA)_[A-Z0-9_]+ is deprecated' "$build/configure.log"); then \
        fail "llama.cpp says$(echo "$line" | sed 's/^.*DEPRECATION:/ /;s/^ */ /'): correct \`cmake_options\` in the inventory."; \
    fi; \
    awk '/Manually-specified variables were not used/ { on = 1; next } on && /^    [A-Za-z]/ { print $1; next } on && NF { on = 0 }' \
        "$build/configure.log" >"$build/unknown_options"; \
    echo building; \
    ninja -C "$build" -t targets all >"$build/targets"; \
    set --; \
    for target in llama-server llama-bench llama-fit-params; do \
        name=$(sed -n "s/^\(\(ggml-\)\{0,1\}$target\): phony\$/\1/p" "$build/targets" | head -n 1); \
        if [ -z "$name" ]; then \
            fail "llama.cpp 222222222222 has no program $target: pin another commit."; \
        fi; \
        set -- "$@" "$name"; \
    done; \
    jobs="${JOBS-}"; \
    if [ -z "$jobs" ]; then \
        fit=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo); \
        jobs=$(printf '%s\n' "$(nproc)" "$fit" | sort -n | head -n 1); \
    fi; \
    ninja -C "$build" -j "$((jobs > 0 ? jobs : 1))" "$@" || exit 1; \
    if ! [ -e "$build/tools/ui/dist/index.html" ]; then \
        fail "llama-server's web page could not be built (npm fetches its parts, and wants Node.js 20.19): set \`web_ui\` to False."; \
    fi; \
    echo packing; \
    rm -rf "$partial"; \
    mkdir -p "$partial/bin" "$partial/lib"; \
    for name in "$@"; do \
        cp "$build/bin/$name" "$partial/bin/"; \
    done; \
    find "$build/bin" -maxdepth 1 -name '*.so*' -exec cp -P {} "$partial/lib/" ';'; \
    sed -n 's/^set(CMAKE_CXX_COMPILER_\(ID\|VERSION\) "\(.*\)")$/\2/p' "$build"/CMakeFiles/*/CMakeCXXCompiler.cmake | \
        paste -s -d ' ' >"$build/compiler"; \
    mkdir "$partial/build"; \
    mv "$build/compiler" "$build/unknown_options" "$partial/build/"; \
    rm -rf "$build"

FROM debian:13
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
    libgomp1 \
 && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 llama \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin llama
COPY --from=build /release /opt/llama.cpp/releases/222222222222-docker-v3-cpu-head-e9b730
RUN ln -s /opt/llama.cpp/releases/222222222222-docker-v3-cpu-head-e9b730 /opt/llama.cpp/current
USER 10001:10001
# A base image may have one that prints, or that lets nothing but itself start.
ENTRYPOINT []
LABEL \
    org.opencontainers.image.title="llama.cpp" \
    org.opencontainers.image.source="https://github.com/ggml-org/llama.cpp" \
    org.opencontainers.image.version="222222222222" \
    org.opencontainers.image.revision="2222222222222222222222222222222222222222" \
    gpuquilt.release="222222222222-docker-v3-cpu-head-e9b730" \
    gpuquilt.targets="llama-server llama-bench llama-fit-params" \
    gpuquilt.backend="cpu" \
    gpuquilt.options="BUILD_SHARED_LIBS=ON CMAKE_BUILD_TYPE=Release GGML_AVX=ON GGML_AVX2=ON GGML_BMI2=ON GGML_F16C=ON GGML_FMA=ON GGML_NATIVE=OFF GGML_RPC=ON GGML_RPC_RDMA=OFF GGML_SSE42=ON LLAMA_BUILD_EXAMPLES=OFF LLAMA_BUILD_TESTS=OFF LLAMA_BUILD_UI=ON LLAMA_CURL=OFF LLAMA_OPENSSL=OFF LLAMA_USE_PREBUILT_UI=OFF"
