# Prints what roles/base/download.py parses, each line with the number of its download.
look() { # NUMBER SOURCE SHA256 FILE STAMP USER
    facts "$@" | sed "s/^/$1 /"
}
facts() {
    if [ ! -f "$4" ]; then
        state=absent
    elif ! sum=$(known "$4" "$5"); then
        state=unknown
    elif [ "$sum" = "$3" ]; then
        state=verified
    else
        state=wrong
        echo "sha256 $sum"
    fi
    echo "state $state"
    [ "$state" = absent ] || ! unreadable "$4" "$6" || echo unreadable
    case $state in absent | wrong) ;; *) return ;; esac
    [ "$2" != "$4" ] || return
    echo "free $(free_kib "$4")"
    [ "$(cat "$5.partial" 2>/dev/null)" != "$3" ] || echo "partial $(stat -c %s "$4.partial" 2>/dev/null)"
    ! command -v curl >/dev/null || ask "$2"
}
