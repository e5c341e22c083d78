"""Verified undos: after an undo the engine looks whether it did what it says.

An undo that answers ok, and one that an operator says was done by hand, is looked at once (``plan.undo_looks``: by the
read of its ``undo_check``, that of its before-image, or the undo's own probe). What came of the look is a record:

* as before the call, or as ``undo_check`` says: the undo is *verified*;
* still as the call left it: the question ``undo-unverified``;
* neither: *drift*, and the question of that name;
* the look failed, or cannot tell: the undo counts as its tool says. It is never repeated for that.

The record of the undo says whether it is looked at (``look``), so a journal that was written without this stays as it
is. A look has no effect, so no record orders it: it is made again by the next owner if its process ends. The saga does
not end before; other undos do not wait for it, unless they touch the same value.

``looking`` says which looks are due and what they mean, ``evolving`` what the records change, ``telling`` what views
show.
"""
