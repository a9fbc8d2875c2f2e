"""The tables of the benchmark as Django models without migrations. PostgreSQL handles rows that refer to deleted ones,
as the migrations define it."""

from datetime import UTC, date, datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models


def today() -> date:
    return datetime.now(UTC).date()


class Group(models.Model):
    name = models.TextField(unique=True)

    class Meta:
        managed = False
        db_table = "groups"

    class JSONAPIMeta:
        resource_name = "group"


class User(models.Model):
    class Status(models.TextChoices):
        ACTIVE = "active"
        BLOCK = "block"
        ARCHIVE = "archive"

    class Gender(models.TextChoices):
        FEMALE = "female"
        MALE = "male"
        OTHER = "other"

    first_name = models.CharField(max_length=255)
    last_name = models.CharField(max_length=255)
    age = models.IntegerField(null=True, blank=True)
    email = models.CharField(max_length=320, null=True, blank=True)
    status = models.TextField(choices=Status, default=Status.ACTIVE)
    birth_date = models.DateField(null=True, blank=True)
    gender = models.TextField(choices=Gender, null=True, blank=True)
    words = ArrayField(models.TextField(), default=list, blank=True)
    date_create = models.DateField(default=today, editable=False)
    group = models.ForeignKey(Group, models.DO_NOTHING, null=True, blank=True, related_name="users")

    class Meta:
        managed = False
        db_table = "users"

    class JSONAPIMeta:
        resource_name = "user"

    @property
    def display_name(self) -> str:
        return f"{self.first_name} {self.last_name}"


class Computer(models.Model):
    name = models.CharField(max_length=255)
    serial = models.TextField(null=True, blank=True)
    owner = models.ForeignKey(User, models.DO_NOTHING, null=True, blank=True, related_name="computers")

    class Meta:
        managed = False
        db_table = "computers"

    class JSONAPIMeta:
        resource_name = "computer"
