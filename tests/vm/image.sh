# A Debian 12 for QEMU: a disk without a boot loader, its kernel beside it, and the key of root and of an ordinary user. GRUB's
# programs are there for boot.sh.
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
root=$folder/root
# The initramfs finds the disk and no more. A mount namespace of its own: when this is killed, what mmdebstrap has mounted goes with it.
unshare --mount mmdebstrap --variant=minbase "$@" \
    --include=systemd-sysv,udev,openssh-server,iproute2,pciutils,kmod,initramfs-tools,zstd,linux-image-amd64,grub-pc-bin,grub2-common \
    --dpkgopt=force-unsafe-io --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt=path-exclude='/usr/share/doc/*' --dpkgopt=path-exclude='/usr/share/man/*' \
    --dpkgopt=path-exclude='/usr/share/locale/*' --dpkgopt=path-exclude='/lib/modules/*/kernel/sound/*' \
    --dpkgopt=path-exclude='/lib/modules/*/kernel/drivers/media/*' \
    --dpkgopt=path-exclude='/lib/modules/*/kernel/drivers/net/wireless/*' \
    --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"' \
    --essential-hook='printf "MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\n" >"$1/etc/initramfs-tools/conf.d/vm"' \
    --essential-hook='printf "virtio_pci\nvirtio_blk\next4\n" >"$1/etc/initramfs-tools/modules"' \
    bookworm "$root" "$mirror"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$folder/key"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$folder/host_key"
rm -f "$root"/etc/ssh/ssh_host_*
install --mode=600 "$folder/host_key" "$root/etc/ssh/ssh_host_ed25519_key"
chroot "$root" useradd --create-home --shell /bin/bash person
for home in /root /home/person; do
    install -d --mode=700 "$root$home/.ssh"
    install --mode=600 "$folder/key.pub" "$root$home/.ssh/authorized_keys"
done
chroot "$root" chown -R person: /home/person
install --mode=644 /dev/stdin "$root/etc/systemd/network/10-vm.network" <<'END'
[Match]
Driver=virtio_net

[Network]
Address=10.0.2.15/24
LinkLocalAddressing=no
IPv6AcceptRA=no
END
chroot "$root" systemctl enable --quiet systemd-networkd.service
chroot "$root" systemctl mask --quiet e2scrub_reap.service apt-daily.timer apt-daily-upgrade.timer
cp --dereference "$root/vmlinuz" "$folder/kernel"
cp --dereference "$root/initrd.img" "$folder/initrd"
truncate --size=2G "$folder/disk"
mkfs.ext4 -q -O ^has_journal -d "$root" "$folder/disk"
rm -rf --one-file-system "$root"
