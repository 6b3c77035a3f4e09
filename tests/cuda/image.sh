# Two base images of Debian 13 as tar files, and NVIDIA's driver library: build.tar holds CUDA 12.4 and a compiler that it knows,
# runtime.tar no more of it than llama.cpp loads.
# Arguments: the folder to make, the package mirror, and what apt must be told to reach it.
set -eu
folder=$1 mirror=$2
shift 2
for option; do
    shift
    set -- "$@" "--aptopt=$option"
done
rm -rf --one-file-system "$folder"
mkdir -p "$folder"
# A mount namespace of its own: when this is killed, what mmdebstrap has mounted goes with it. Nobody links llama.cpp with the
# static libraries, which are most of the toolkit, but for the one with which CMake tries the compiler.
debian() { # NAME PACKAGES HOOK
    name=$1 packages=$2 hook=$3
    shift 3
    unshare --mount mmdebstrap --variant=minbase --components=main,contrib,non-free --include="$packages" --skip=output/dev \
        --dpkgopt=force-unsafe-io --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt=path-exclude='/usr/share/doc/*' --dpkgopt=path-exclude='/usr/share/man/*' \
        --dpkgopt=path-exclude='/usr/share/locale/*' --dpkgopt=path-exclude='/usr/lib/*_static*.a' \
        --dpkgopt=path-include='/usr/lib/*/libcudart_static.a' --customize-hook="$hook" "$@" \
        trixie "$folder/$name.tar" "$mirror"
}
debian build nvidia-cuda-toolkit,g++-13,ca-certificates \
    "chroot \"\$1\" cat /usr/lib/x86_64-linux-gnu/libcuda.so.1 >'$folder/libcuda.so.1'" "$@"
debian runtime libcudart12,libcublas12,ca-certificates true "$@"
