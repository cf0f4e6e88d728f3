"""What a comparison found: rows, the JSON document, the table."""
