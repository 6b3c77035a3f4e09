# A disk that boots by itself, as a hypervisor's does: a partition table, GRUB, and in the partition what image.sh has made.
# Arguments: the folder that image.sh has made, and the file to make.
set -eu
folder=$1 disk=$2
# The partition begins at 1 MiB and is as large as the file system; GRUB lives before it.
truncate --size=2049M "$disk"
dd if="$folder/disk" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
printf '\200\0\0\0\203\0\0\0\0\010\0\0\0\0\100\0' | dd of="$disk" bs=1 seek=446 conv=notrunc status=none
printf '\125\252' | dd of="$disk" bs=1 seek=510 conv=notrunc status=none
loop=$(losetup --find --show "$disk")
root=$(mktemp --directory)
clean() {
    umount --recursive "$root" 2>/dev/null || true
    partx --delete "$loop" 2>/dev/null || true
    losetup --detach "$loop"
    rmdir "$root"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM
# Not every kernel can read the table: the partition is named to it.
partx --add "$loop"
mount "${loop}p1" "$root"
for name in dev proc sys; do mount --bind "/$name" "$root/$name"; done
# The IOMMU is off, as many distributions leave it.
cat >"$root/etc/default/grub" <<'END'
GRUB_TIMEOUT=0
GRUB_TERMINAL=console
GRUB_DISABLE_LINUX_UUID=true
GRUB_CMDLINE_LINUX_DEFAULT=quiet
GRUB_CMDLINE_LINUX="rw console=ttyS0 mitigations=off no_timer_check intel_iommu=off"
END
chroot "$root" grub-install --target=i386-pc "$loop"
chroot "$root" update-grub
# The machine finds its disk under another name.
sed -i "s,root=${loop}p1,root=/dev/vda1," "$root/boot/grub/grub.cfg"
