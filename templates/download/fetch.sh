# Brings files to their final paths, one call of fetch for each. Exit status 3: the last line says why.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "$host: $1"; exit 3; }

follow() { # PROCESS WORDS TOTAL COMMAND…: say how far a process is, as the command tells, until it ends
    process=$1 words=$2 total=$3
    shift 3
    while kill -0 "$process" 2>/dev/null; do
        bytes=$("$@" 2>/dev/null) || bytes=
        echo "$words $((${bytes:-0} / 1048576))${total:+ of $((total / 1048576))} MiB"
        sleep 1
    done
    wait "$process"
}

position() { sed -n 's/^pos:[[:space:]]*//p' "/proc/$1/fdinfo/0"; }

digest() { # FILE: sets sum
    sha256sum <"$1" >"$work/sum" &
    follow $! "checking $(basename "$1" .partial):" "$(stat -Lc %s "$1")" position $!
    sum=$(cut -c -64 "$work/sum")
}

write_stamp() { # STAMP FILE SHA256
    mkdir -p "${1%/*}"
    echo "$3 $(properties "$2")" >"$1.new"
    mv "$1.new" "$1"
}

fetch() { # SOURCE SHA256 FILE STAMP USER PREFIX
    if [ -f "$3" ]; then
        if ! sum=$(known "$3" "$4"); then
            echo "checking ${3##*/}"
            before=$(properties "$3")
            digest "$3"
            [ "$before" = "$(properties "$3")" ] || fail "$3 changes while it is read: run again when it is complete."
            write_stamp "$4" "$3" "$sum"
        fi
        if [ "$sum" != "$2" ]; then
            [ "$1" != "$3" ] || fail "${6}source = $1 has the SHA-256 $sum, and ${6}sha256 is $2: correct the one or the other."
            replace_file "$@"
        fi
    elif [ "$1" = "$3" ]; then
        fail "${6}source = $1 is no file there: correct the path, or put the file there."
    else
        replace_file "$@"
    fi
    ! unreadable "$3" "$5" || fail "the user of the service cannot read $3: allow it (chmod), or move the file to a folder that all may enter."
}

replace_file() { # likewise
    mkdir -p "${4%/*}"
    [ -d "${3%/*}" ] || install -d -m 755 "${3%/*}"
    # What another wish left behind is no beginning of this one.
    if [ "$(cat "$4.partial" 2>/dev/null)" != "$2" ]; then
        rm -f "$3.partial"
        echo "$2" >"$4.partial"
    fi
    download "$1" "$3.partial"
    digest "$3.partial"
    if [ "$sum" != "$2" ]; then
        rm -f "$3.partial" "$4.partial"
        # The folder of a model that was never had is of no use; one with files in it stays.
        rmdir "${3%/*}" 2>/dev/null || true
        fail "${6}source = $1 has the SHA-256 $sum, and ${6}sha256 is $2: correct the one or the other; nothing was replaced."
    fi
    chmod 644 "$3.partial"
    # A stamp must not outlive its data when the power fails.
    sync "$3.partial"
    mv -fT "$3.partial" "$3"
    write_stamp "$4" "$3" "$2"
    rm -f "$4.partial"
}

download() { # URL PARTIAL: on after every break, until three tries in a row have brought nothing
    total=$(ask "$1" | sed -n 's/^size //p')
    touch "$2"
    most=$(stat -c %s "$2") tries=0
    while :; do
        have=$(stat -c %s "$2")
        [ -z "$total" ] || [ "$have" -le "$total" ] || { restart "$2"; have=0; }
        [ "$have" != "$total" ] || return 0
        [ -z "$total" ] || check_space "$2" $((total - have))
        curl --silent --show-error --globoff --fail --location --connect-timeout 30 --speed-limit 1024 --speed-time 60 \
            --continue-at - --output "$2" "$1" 2>"$work/error" &
        if follow $! "downloading $(basename "$2" .partial):" "$total" stat -c %s "$2"; then return 0; else status=$?; fi
        if [ "$(stat -c %s "$2")" -gt "$most" ]; then most=$(stat -c %s "$2") tries=0; else tries=$((tries + 1)); fi
        [ "$tries" -lt 3 ] || fail "$1 could not be downloaded ($(head -n 1 "$work/error")): run again to go on."
        echo "downloading again: $(head -n 1 "$work/error")"
        # 33: the server knows no ranges.
        if [ "$status" = 33 ]; then restart "$2"; else sleep 3; fi
    done
}

restart() { rm -f "$1"; touch "$1"; }

check_space() { # FILE BYTES
    kib=$(free_kib "$1")
    [ $((kib * 1024)) -ge $(($2 + reserve)) ] ||
        fail "${1%/*} has $((kib / 1024)) MiB free, and the download needs $((($2 + 1048575) / 1048576)) MiB and leaves \
$((reserve / 1048576)) MiB free: free some space there, or choose another folder."
}
