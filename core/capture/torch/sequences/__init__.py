"""Operations on sequences: in the words of other operators, or with sizes that only data tells."""
