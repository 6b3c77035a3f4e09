# What both the look at a download and the download itself need.
export LC_ALL=C
properties() { stat -Lc '%s %.Y' "$1"; }
known() { # FILE STAMP: its hash, if it has not changed since it was hashed
    [ "$(cut -d ' ' -f 2- "$2" 2>/dev/null)" = "$(properties "$1")" ] && cut -d ' ' -f 1 "$2"
}
unreadable() { # FILE USER
    id -u "$2" >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 1
    ! setpriv --reuid "$2" --regid "$(id -g "$2")" --init-groups test -r "$1"
}
free_kib() { # PATH: KiB free where it lies or is to lie
    place=$1
    while [ ! -d "$place" ]; do place=${place%/*} place=${place:-/}; done
    df -Pk "$place" | awk 'NR == 2 { print $4 }'
}
ask() { # URL: what its server says of it; the size is that of the file, not of an error or a redirection
    curl --silent --show-error --globoff --head --location --connect-timeout 10 --max-time 30 \
        --write-out 'status %{http_code}\n' "$1" 2>&1 | tr -d '\r' | awk '
        /^HTTP\// { size = "" }
        tolower($1) == "content-length:" { size = $2 }
        $1 == "status" { status = $2 + 0 }
        /^curl: / { error = $0 }
        END {
            print "http " status
            if (error != "") print "error " error
            else if (size ~ /^[0-9]+$/ && (status == 0 || status == 200)) print "size " size
        }'
}
