# llama.cpp for cuda12.9 on Volta: the build context is the source at the commit of the labels.
FROM nvidia/cuda:12.9.2-devel-ubuntu24.04 AS build
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
    echo configuring; \
    if ! cmake -G Ninja -S "$source" -B "$build" \
        -DBUILD_SHARED_LIBS=ON \
        -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CUDA_ARCHITECTURES=70-real \
        -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined \
        -DGGML_AVX=ON \
        -DGGML_AVX2=ON \
        -DGGML_BMI2=ON \
        -DGGML_CUDA=ON \
        -DGGML_CUDA_GRAPHS=ON \
        -DGGML_CUDA_NCCL=OFF \
        -DGGML_F16C=ON \
        -DGGML_FMA=ON \
        -DGGML_NATIVE=OFF \
        -DGGML_RPC=ON \
        -DGGML_RPC_RDMA=OFF \
        -DGGML_SSE42=ON \
        -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_CURL=OFF \
        -DLLAMA_OPENSSL=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF \
        -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
        -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache \
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
    for target in rpc-server; do \
        name=$(sed -n "s/^\(\(ggml-\)\{0,1\}$target\): phony\$/\1/p" "$build/targets" | head -n 1); \
        if [ -z "$name" ]; then \
            fail "llama.cpp 222222222222 has no program $target: pin another commit."; \
        fi; \
        set -- "$@" "$name"; \
    done; \
    jobs="${JOBS-}"; \
    if [ -z "$jobs" ]; then \
        fit=$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo); \
        jobs=$(printf '%s\n' "$(nproc)" "$fit" | sort -n | head -n 1); \
    fi; \
    ninja -C "$build" -j "$((jobs > 0 ? jobs : 1))" "$@" || exit 1; \
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

FROM nvidia/cuda:12.9.2-runtime-ubuntu24.04
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
    libgomp1 \
 && rm -rf /var/lib/apt/lists/*
# NVIDIA's toolkit would prefer this driver's library to an older one of the host, and a GeForce does not work with it.
RUN rm -rf /usr/local/cuda*/compat
RUN groupadd --gid 10001 llama \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin llama
COPY --from=build /release /opt/llama.cpp/releases/222222222222-docker-v3-cuda12.9-70-worker-e78894
RUN ln -s /opt/llama.cpp/releases/222222222222-docker-v3-cuda12.9-70-worker-e78894 /opt/llama.cpp/current
USER 10001:10001
# A base image may have one that prints, or that lets nothing but itself start.
ENTRYPOINT []
LABEL \
    org.opencontainers.image.title="llama.cpp" \
    org.opencontainers.image.source="https://github.com/ggml-org/llama.cpp" \
    org.opencontainers.image.version="222222222222" \
    org.opencontainers.image.revision="2222222222222222222222222222222222222222" \
    gpuquilt.release="222222222222-docker-v3-cuda12.9-70-worker-e78894" \
    gpuquilt.targets="rpc-server" \
    gpuquilt.backend="cuda" \
    gpuquilt.toolkit="12.9" \
    gpuquilt.architectures="70-real" \
    gpuquilt.generation="Volta" \
    gpuquilt.options="BUILD_SHARED_LIBS=ON CMAKE_BUILD_TYPE=Release CMAKE_CUDA_ARCHITECTURES=70-real CMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined GGML_AVX=ON GGML_AVX2=ON GGML_BMI2=ON GGML_CUDA=ON GGML_CUDA_GRAPHS=ON GGML_CUDA_NCCL=OFF GGML_F16C=ON GGML_FMA=ON GGML_NATIVE=OFF GGML_RPC=ON GGML_RPC_RDMA=OFF GGML_SSE42=ON LLAMA_BUILD_EXAMPLES=OFF LLAMA_BUILD_TESTS=OFF LLAMA_BUILD_UI=OFF LLAMA_CURL=OFF LLAMA_OPENSSL=OFF LLAMA_USE_PREBUILT_UI=OFF"
