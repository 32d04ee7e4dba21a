"""The catalog: one YAML file per published method, with what it sets and what it claims.

=========== ======================================================================================
method      `Method`: what a file may say, typed; `FAMILIES`
claim       `MethodClaim`, `ClaimDecision`: an experiment, decided by what was said beforehand
find        `find_method(name)`, `every_method()`: a project's own `methods/` first, those of its
            plug-ins, then `<family>/<name>.yaml` here
lay         `laid_over(under, over)`: a recipe's settings over a method's
systems     the published systems that a method may be of, and what those not whole here lack
=========== ======================================================================================

A method is data: what it sets are sections of a recipe, so it is in a stage's key by value, and no
change of a file moves the key of a stage that another method configures.
"""
