"""Update jobs: indexes merged, rows deleted and added, and the result compacted, in one job that resumes; and its plan.

Imports `pipeline.merge`, `pipeline.compact`, `pipeline.append`, `pipeline.plan` and the floors below.
"""
