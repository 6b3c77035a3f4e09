# A repository with its key. Nothing is changed before both have been tried.

need() { # PACKAGE…: what fetching a key needs; apt may be broken by the very entries that are to go, so it reads the new ones
    [ $# -gt 0 ] || return 0
    lists="-o Dir::Etc::sourcelist=$stage/sources.list -o Dir::Etc::sourceparts=$stage/sources.list.d"
    refresh
    record base "$@"
    apt install --no-install-recommends "$@" || fail "$* could not be installed ($(reason)): see to it there, then run again."
    lists=
}

fetch_key() { # URL FINGERPRINT
    said=$(curl --silent --show-error --fail --globoff --location --connect-timeout 20 --max-time 120 --retry 2 \
        --output "$stage/fetched" "$1" 2>&1) ||
        fail "the signing key could not be fetched from $1 (${said##*curl: }): see to it, then run again; nothing was changed."
    mkdir -m 700 "$stage/gnupg"
    keys() { gpg --homedir "$stage/gnupg" --batch --no-options --no-autostart --quiet "$@" 2>/dev/null; }
    keys --import "$stage/fetched" || true
    keys --armor --export "$2" >"$stage/key.asc"
    found=$(keys --with-colons --fingerprint | awk -F : '$1 == "pub" { wanted = 1 } $1 == "fpr" && wanted { print $10; wanted = 0 }')
    echo "$found" | grep -qix "$2" ||
        fail "$1 is not the key $2 (it holds $(echo ${found:-no key})): correct the fingerprint or the address; nothing was changed."
}

change() { # FOLDER [FILE TEXT]…: an empty text takes a file away
    folder=$1
    shift
    while [ $# -gt 0 ]; do
        if [ -n "$2" ]; then
            printf %s "$2" >"$folder/$1.new"
            mv "$folder/$1.new" "$folder/$1"
        else
            rm -f "$folder/$1"
        fi
        shift 2
    done
}

add_repository() { # URL FINGERPRINT KEY-FILE SOURCE-FILE TEXT "MISSING…" [FILE TEXT]…, below /etc/apt; no URL: the key is there
    url=$1 fingerprint=$2 key_file=$3 source_file=$4 text=$5 missing=$6
    shift 6
    set -e
    umask 022
    stage=$(mktemp -d)
    trap 'rm -rf "$stage"' EXIT
    # apt fetches as a user of its own.
    chmod 755 "$stage"
    mkdir -p "$etc/sources.list.d" "$etc/keyrings"
    cp -r "$etc/sources.list.d" "$stage"
    [ ! -f "$etc/sources.list" ] || cp "$etc/sources.list" "$stage"
    change "$stage" "$@"
    need $missing
    if [ -n "$url" ]; then
        fetch_key "$url" "$fingerprint"
    else
        cp "$etc/$key_file" "$stage/key.asc"
    fi
    printf %s "$text" | sed "s|^Signed-By: .*|Signed-By: $stage/key.asc|" >"$stage/tried.sources"
    apt update -o Dir::Etc::sourcelist="$stage/tried.sources" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 \
        -o APT::Update::Error-Mode=any ||
        fail "the repository ${source_file##*/} cannot be used ($(reason)): see to it, then run again; nothing was changed."
    # In this order apt never sees two entries that contradict each other.
    change "$etc" "$@"
    cp "$stage/key.asc" "$etc/$key_file.new"
    mv "$etc/$key_file.new" "$etc/$key_file"
    change "$etc" "$source_file" "$text"
}
