"""Placeholders: a command keeps what anyone can use, and none of the values of one run."""

from __future__ import annotations

from upskill.authoring.evidence.placeholders import portable

FOLDER = "/home/ada/harbour"


def test_values_of_one_run_become_placeholders_named_after_their_option() -> None:
    for command, shown in {
        "avocet fetch --snapshot 2026-05-11T04:00:00Z --into /Volumes/Scratch/x": (
            "avocet fetch --snapshot <snapshot> --into <into>"
        ),
        "avocet verify 9f86d081884c7d659a2feaa0c55ad015": "avocet verify <hash>",
        "avocet job rerun 88213 --since 20260511": "avocet job rerun <job> --since <since>",
        "avocet tail run-20260511-0400": "avocet tail run-<date>",
        "avocet export --out=/tmp/a/out.csv --commit 4f2a9be": "avocet export --out=<out> --commit <commit>",
        "gh run view 1234567890": "gh run view <id>",
        "moss upload a.tar --url https://ci.test/job/4812/files": "moss upload a.tar --url https://ci.test/job/<job>/files",
        "gh pr checkout 1234": "gh pr checkout <pr>",
        "cairn restore 7f3a": "cairn restore <id>",
        "avocet close HARB-1182": "avocet close <ticket>",
        "ssh ops@10.4.3.17 uptime": "ssh ops@<address> uptime",
        "kubectl exec web-7d4b9c6f5-x2x9z -- ping": "kubectl exec <pod> -- ping",
        "docker pull img@sha256:9f86d081884c7d659a2feaa0c55ad015": "docker pull img@sha256:<digest>",
        "docker run -v /home/bob/a:/app img": "docker run -v <folder>:/app img",
        f"make -C {FOLDER}/src all": "make -C src all",
        f"avocet load {FOLDER}": "avocet load .",
        "lampfmt -w ~/src/lamps/auth.lmp": "lampfmt -w <file>",
    }.items():
        assert portable(command, FOLDER) == shown


def test_what_is_the_same_for_everyone_stays() -> None:
    for command in (
        *("ferrule tag 2.4.0", "pip install torch==2.9.0", "nginx -c /etc/nginx/nginx.conf", "moss serve --port 8088"),
        *("iconv -f UTF-8 -t ISO-8859 a/b/c.txt", "curl http://localhost:8080/a/b", "cat ~/.config/moss/moss.toml"),
        *("rsync -a site/ pages:/srv/pages/", "npx tsc src/**/*.ts", "moss run --workers 12 > /dev/null"),
        *(
            "sed -i s/a/b/ moss.ini",
            "moss bind 127.0.0.1",
            "train --gpu a100 --crf 28",
            "cp a.txt ../b",
            "psql -c 'select 1/2'",
        ),
    ):
        assert portable(command, FOLDER) == command
