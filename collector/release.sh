#!/usr/bin/env bash
# Tags the current commit as the release that __version__ names: an annotated tag vX.Y.Z whose message is the section of
# CHANGELOG.md for that version. It refuses a tree with changes or untracked files, a version without a section, entries
# under [Unreleased], and a tag that exists. With --dry-run it prints the tag and the message, and makes nothing. It never pushes.
#
#     collector/release.sh [--dry-run]
set -euo pipefail

fail() { echo "release.sh: $1" >&2; exit "${2:-1}"; }

[ $# -le 1 ] && [ "${1:---dry-run}" = --dry-run ] || fail "usage: collector/release.sh [--dry-run]" 2
cd "$(dirname "$(realpath "$0")")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' python/op_profiler/__init__.py)
tag=v$version
[ -z "$(git status --porcelain)" ] || fail "the tree has uncommitted changes: commit or remove them (git status)"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "the tag $tag exists: raise __version__"
unreleased=$(awk 'index($0, "## [") == 1 { inside = $0 == "## [Unreleased]"; next } inside && NF' CHANGELOG.md)
[ -z "$unreleased" ] || fail "CHANGELOG.md has entries under [Unreleased]: move them to the section of $version"
section=$(awk -v head="## [$version] - " 'index($0, "## [") == 1 { inside = index($0, head) == 1; next } inside' CHANGELOG.md)
[ -n "$section" ] || fail "CHANGELOG.md has no section '## [$version] - DATE': rename [Unreleased]"
message="op_profiler $version"$'\n'"$section"
if [ $# -eq 1 ]; then
    printf '%s\n\n%s\n' "git tag -a $tag" "$message"
else
    # Without --cleanup, git takes the headings for comments.
    git tag -a "$tag" --cleanup=whitespace -m "$message"
    echo "tagged $(git rev-parse --short HEAD) as $tag; publish it with: git push origin $tag"
fi
