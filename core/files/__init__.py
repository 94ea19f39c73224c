"""Files: CostGraphDef, schedule JSON, and how any file is written whole or not at all."""
