"""Places for the nodes of a large picture, as those of a tree: the children of a node stand beside it, one below the other, and nothing else
stands between them.

So no edge of the tree crosses another one or a node, however large the picture is. Edges that are not of the tree, such as that to a tied weight, are
drawn across.
"""

from __future__ import annotations

from collections.abc import Sequence


def lines_of(parents: Sequence[int]) -> list[float]:
    """Finds the line of each node: the number of lines above its middle, which may be a fraction.

    Args:
        parents: For each node the one beside which it stands, which comes before it. The first node is the root, and its own parent.

    Example:
        >>> lines_of([0, 0, 0, 1, 1])
        [1.25, 0.5, 2.0, 0.0, 1.0]
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if node:
            children[parent].append(node)
    lines, used = [0.0] * len(parents), 0
    stack = [0]
    while stack:
        node = stack.pop()
        stack += reversed(children[node])
        if not children[node]:
            lines[node] = float(used)
            used += 1
    for node in reversed(range(len(parents))):
        if children[node]:
            lines[node] = (lines[children[node][0]] + lines[children[node][-1]]) / 2
    return lines
