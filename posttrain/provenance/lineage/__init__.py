"""The graph from problem set to released policy: walk it, draw it, trace rows, recall what is bad.

A release is a node of the graph with the artifacts that it names as its inputs:

    ledger.annotations.release(Release(tag, created, members, git_commit, statement))

`members` are `ArtifactRecord`s with the digests under which stage runs recorded them (take them
from `StageRun.outputs` or `.inputs`), `statement` is the digest of what was signed. Tags are
unique, and a release is never changed. Before that, ask `recalls.refuse_recalled(ledger, members)`:
it raises a `UserError` if a member, or anything that a member was made from, was recalled.
`ledger.annotations.releases()` lists them; `names.find_node` takes a tag; `impact` names releases
first.
"""
