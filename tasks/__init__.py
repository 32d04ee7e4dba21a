"""One package per kind of stage. Stages never import each other, Prefect or MLflow."""
